#!/bin/bash
# kcat with the librdkafka that the distribution brings (Debian 12: kcat 1.7.1 with librdkafka 2.0.2), an old client on purpose.
# Topics are created by producing to them.   kcat.sh test HOST:PORT
set -u
SUITE=kcat
. "$(dirname "$0")/lib.sh"
bootstrap=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

k() { timeout 30 kcat -b "$bootstrap" "$@" 2>"$scratch/err" || { echo "kcat failed: $(tail -2 "$scratch/err")"; return 1; }; }
from_start() { k -C -e -q -p 0 -o beginning -t "$@"; }

contains metadata "$(k -L)" "broker"
contains metadata_as_json "$(k -L -J)" '"brokers":'

for codec in none gzip snappy lz4 zstd; do
  t=$(topic "$codec")
  seq 3000 | k -P -t "$t" -p 0 -z $codec -X acks=all
  equal "codec_$codec" "$(from_start "$t" | md5sum)" "$(seq 3000 | md5sum)"
  equal "codec_${codec}_offsets" "$(from_start "$t" -f '%o\n' | md5sum)" "$(seq 0 2999 | md5sum)"
done

for acks in 0 1 all; do
  t=$(topic "acks$acks")
  # acks=0 is not answered: the topic has to be there before, or the records go nowhere.
  echo first | k -P -t "$t" -p 0
  seq 500 | k -P -t "$t" -p 0 -X acks=$acks
  equal "acks_$acks" "$(from_start "$t" -c 501 | md5sum)" "$( (echo first; seq 500) | md5sum)"
done

t=$(topic headers)
printf 'k1:v1\nk2:v2\n' | k -P -t "$t" -p 0 -K: -H a=1 -H empty= -H a=2
equal headers "$(from_start "$t" -f '%k=%s %h;')" "k1=v1 a=1,empty=,a=2;k2=v2 a=1,empty=,a=2;"

t=$(topic nulls)
printf 'key:value\nkey:\n:value\n:\n' | k -P -t "$t" -p 0 -K: -Z
equal nulls "$(from_start "$t" -f '%K/%S;')" "3/5;3/-1;-1/5;-1/-1;"
t=$(topic empties)
printf 'key:value\nkey:\n' | k -P -t "$t" -p 0 -K:
equal empty_value "$(from_start "$t" -f '%K/%S;')" "3/5;3/0;"

t=$(topic sizes)
for n in 1 100 10000 1000000; do
  head -c $n /dev/urandom >"$scratch/$n"
  k -P -t "$t" -p 0 -X message.max.bytes=2000000 "$scratch/$n"
done
equal sizes "$(from_start "$t" -f '%S ')" "1 100 10000 1000000 "
equal a_large_value_comes_back "$(k -C -q -t "$t" -p 0 -o 3 -c 1 -D '' | md5sum)" "$(md5sum <"$scratch/1000000")"
# The distribution's maximum is 1048588 bytes a batch.
head -c 1048517 /dev/zero >"$scratch/over"
contains one_byte_too_many "$(k -P -t "$t" -p 0 -X message.max.bytes=2000000 "$scratch/over"; cat "$scratch/err")" "too large"

t=$(topic offsets)
seq 10 | k -P -t "$t" -p 0
equal by_offset "$(k -C -e -q -t "$t" -p 0 -o 7 | tr '\n' ' ')" "8 9 10 "
equal by_offset_from_the_end "$(k -C -e -q -t "$t" -p 0 -o -3 | tr '\n' ' ')" "8 9 10 "
equal at_the_end "$(k -C -e -q -t "$t" -p 0 -o end | tr '\n' ' ')" ""
equal watermark_low "$(k -Q -t "$t:0:-2")" "$t [0] offset 0"
equal watermark_high "$(k -Q -t "$t:0:-1")" "$t [0] offset 10"

t=$(topic time)
echo before | k -P -t "$t" -p 0
sleep 0.1
middle=$(date +%s%3N)
sleep 0.1
printf 'after\nlast\n' | k -P -t "$t" -p 0
equal by_time "$(k -C -e -q -t "$t" -p 0 -o "s@$middle" | tr '\n' ' ')" "after last "
equal by_time_range "$(k -C -e -q -t "$t" -p 0 -o "s@1" -o "e@$middle" | tr '\n' ' ')" "before "
equal by_time_in_the_future "$(k -C -e -q -t "$t" -p 0 -o "s@$((middle + 3600000))" | wc -l)" 0
equal offset_for_a_time "$(k -Q -t "$t:0:$middle")" "$t [0] offset 1"

t=$(topic idempotent)
seq 5000 | k -P -t "$t" -p 0 -X enable.idempotence=true -z lz4
equal idempotent "$(from_start "$t" | md5sum)" "$(seq 5000 | md5sum)"
closing
