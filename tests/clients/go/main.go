// franz-go: franz test|produce|consume|member HOST:PORT ...   (see ../README.md)
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	timeBase     = int64(1_700_000_000_000)
	largestValue = 1048588 - 61 - 3 - 8
)

var (
	bootstrap string
	lengths   = []int{1, 7, 64, 500, 1500, 20, 9000, 3}
	codecs    = []string{"none", "gzip", "snappy", "lz4", "zstd"}
)

func filler(i, length int) []byte {
	x := uint32(i)*2654435761 + 1
	out := make([]byte, length)
	for j := range out {
		if j%2 == 1 {
			out[j] = byte(97 + i%26)
		} else {
			x = x*1664525 + 1013904223
			out[j] = byte(x >> 24)
		}
	}
	return out
}

func record(i int, plain bool) *kgo.Record {
	r := &kgo.Record{Timestamp: time.UnixMilli(timeBase + int64(i)*10)}
	switch {
	case i%5 == 2:
	case i%19 == 7:
		r.Key = []byte{}
	default:
		r.Key = fmt.Appendf(nil, "key-%d", i%17)
	}
	switch {
	case i%9 == 4 && r.Key != nil:
	case i%9 == 7:
		r.Value = []byte{}
	case i%100 == 99:
		r.Value = filler(i, 70_000)
	default:
		r.Value = filler(i, lengths[i%8])
	}
	switch i % 4 {
	case 1:
		r.Headers = []kgo.RecordHeader{{Key: "empty", Value: []byte{}}, {Key: "trace", Value: fmt.Appendf(nil, "t-%d", i)}}
	case 2:
		bin := make([]byte, 255)
		for j := range bin {
			bin[j] = byte(j + 1)
		}
		r.Headers = []kgo.RecordHeader{{Key: "bin", Value: bin}, {Key: "none"}}
	case 3:
		r.Headers = []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "naïve", Value: []byte("é")}}
	}
	if plain {
		seen := map[string]bool{}
		var first []kgo.RecordHeader
		for _, h := range r.Headers {
			if h.Value != nil && !seen[h.Key] {
				seen[h.Key] = true
				first = append(first, h)
			}
		}
		r.Headers = first
	}
	return r
}

func records(from, to int) (out []*kgo.Record) {
	for i := from; i < to; i++ {
		out = append(out, record(i, false))
	}
	return out
}

func digest(r *kgo.Record) string {
	h := sha256.New()
	part := func(p []byte) {
		n := int32(-1)
		if p != nil {
			n = int32(len(p))
		}
		binary.Write(h, binary.BigEndian, n)
		h.Write(p)
	}
	part(r.Key)
	part(r.Value)
	for _, x := range r.Headers {
		part([]byte(x.Key))
		part(x.Value)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

func equalBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func client(more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, more...)...)
}

func create(ctx context.Context, tag string, partitions int32, configs map[string]string) (string, error) {
	c, err := client()
	if err != nil {
		return "", err
	}
	defer c.Close()
	keep := "-1"
	all := map[string]*string{"retention.ms": &keep}
	for k, v := range configs {
		all[k] = &v
	}
	name := fmt.Sprintf("t-%s-%d", tag, time.Now().UnixNano())
	a := kadm.NewClient(c)
	if _, err := a.CreateTopic(ctx, partitions, 1, all, name); err != nil {
		return name, err
	}
	// Kafka answers before every broker knows the topic.
	for range 100 {
		listed, err := a.ListTopics(ctx, name)
		if err == nil && listed.Error() == nil && len(listed[name].Partitions) == int(partitions) {
			return name, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return name, errors.New("the topic is not in the metadata 5 s after its creation")
}

func compression(codec string) kgo.CompressionCodec {
	switch codec {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func produce(ctx context.Context, topic string, partition int32, rs []*kgo.Record, more ...kgo.Opt) ([]int64, error) {
	c, err := client(append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(10_000_000),
		kgo.ProducerLinger(20 * time.Millisecond)}, more...)...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var sent []*kgo.Record
	for _, r := range rs {
		copied := *r
		copied.Topic, copied.Partition = topic, partition
		sent = append(sent, &copied)
	}
	if err := c.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return nil, err
	}
	var offsets []int64
	for _, r := range sent {
		offsets = append(offsets, r.Offset)
	}
	return offsets, nil
}

func consume(ctx context.Context, topic string, partition int32, start kgo.Offset, count int, more ...kgo.Opt) (got []*kgo.Record, err error) {
	c, err := client(append(more, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: start}}))...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for len(got) < count {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return got, fmt.Errorf("after %d of %d records: %w", len(got), count, err)
		}
		got = append(got, fetches.Records()...)
	}
	return got, nil
}

func same(got, want []*kgo.Record, first int64) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d records, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		ok := g.Offset == first+int64(i) && equalBytes(g.Key, w.Key) && equalBytes(g.Value, w.Value) &&
			g.Timestamp.Equal(w.Timestamp) && len(g.Headers) == len(w.Headers)
		for j := 0; ok && j < len(g.Headers); j++ {
			ok = g.Headers[j].Key == w.Headers[j].Key && equalBytes(g.Headers[j].Value, w.Headers[j].Value)
		}
		if !ok {
			return fmt.Errorf("record %d at offset %d is not what was sent", i, g.Offset)
		}
	}
	return nil
}

func roundTrip(ctx context.Context, topic string, count int, more ...kgo.Opt) error {
	want := records(0, count)
	offsets, err := produce(ctx, topic, 0, want, more...)
	if err != nil {
		return err
	}
	for i, o := range offsets {
		if o != int64(i) {
			return fmt.Errorf("record %d was acknowledged at offset %d", i, o)
		}
	}
	got, err := consume(ctx, topic, 0, kgo.NewOffset().AtStart(), count)
	if err != nil {
		return err
	}
	return same(got, want, 0)
}

type testCase struct {
	name string
	run  func(context.Context) error
}

func cases() (all []testCase) {
	add := func(name string, run func(context.Context) error) { all = append(all, testCase{name, run}) }
	for _, codec := range codecs {
		add("codec_"+codec, func(ctx context.Context) error {
			t, err := create(ctx, "codec-"+codec, 1, nil)
			if err != nil {
				return err
			}
			return roundTrip(ctx, t, 300, kgo.ProducerBatchCompression(compression(codec)))
		})
	}
	add("acks_1", func(ctx context.Context) error {
		t, err := create(ctx, "acks-1", 1, nil)
		if err != nil {
			return err
		}
		return roundTrip(ctx, t, 100, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	})
	add("acks_0", func(ctx context.Context) error {
		t, err := create(ctx, "acks-0", 1, nil)
		if err != nil {
			return err
		}
		want := records(0, 100)
		if _, err := produce(ctx, t, 0, want, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()); err != nil {
			return err
		}
		got, err := consume(ctx, t, 0, kgo.NewOffset().AtStart(), 100)
		if err != nil {
			return err
		}
		return same(got, want, 0)
	})
	add("idempotent", func(ctx context.Context) error {
		t, err := create(ctx, "idempotent", 1, nil)
		if err != nil {
			return err
		}
		return roundTrip(ctx, t, 1500, kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(1_000_000))
	})
	add("from_one_byte_to_max_message_bytes", func(ctx context.Context) error {
		t, err := create(ctx, "sizes", 1, nil)
		if err != nil {
			return err
		}
		plain := func(n int) *kgo.Record { return &kgo.Record{Value: filler(n, n), Timestamp: time.UnixMilli(timeBase)} }
		none := kgo.ProducerBatchCompression(kgo.NoCompression())
		var want []*kgo.Record
		for i, n := range []int{1, 2, 127, 128, 16384, 999_999, largestValue} {
			want = append(want, plain(n))
			offsets, err := produce(ctx, t, 0, want[i:], none)
			if err != nil || offsets[0] != int64(i) {
				return fmt.Errorf("%d bytes: offset %v, %v", n, offsets, err)
			}
		}
		got, err := consume(ctx, t, 0, kgo.NewOffset().AtStart(), len(want))
		if err != nil {
			return err
		}
		if err := same(got, want, 0); err != nil {
			return err
		}
		if _, err := produce(ctx, t, 0, []*kgo.Record{plain(largestValue + 1)}, none); !errors.Is(err, kerr.MessageTooLarge) {
			return fmt.Errorf("one byte too many was answered with %v", err)
		}
		return nil
	})
	add("by_offset_in_the_middle_of_a_batch", func(ctx context.Context) error {
		t, err := create(ctx, "middle", 1, nil)
		if err != nil {
			return err
		}
		want := records(0, 400)
		if _, err := produce(ctx, t, 0, want); err != nil {
			return err
		}
		for _, start := range []int{0, 1, 199, 398, 399} {
			got, err := consume(ctx, t, 0, kgo.NewOffset().At(int64(start)), 400-start)
			if err != nil {
				return err
			}
			if err := same(got, want[start:], int64(start)); err != nil {
				return err
			}
		}
		return nil
	})
	add("by_time", func(ctx context.Context) error {
		t, err := create(ctx, "time", 1, nil)
		if err != nil {
			return err
		}
		want := records(0, 100)
		for i := 0; i < 100; i += 20 {
			if _, err := produce(ctx, t, 0, want[i:i+20]); err != nil {
				return err
			}
		}
		c, err := client()
		if err != nil {
			return err
		}
		defer c.Close()
		for _, x := range [][2]int64{{-5, 0}, {0, 0}, {1, 1}, {495, 50}, {500, 50}, {990, 99}, {991, 100}} {
			// kadm answers with the end of the log where no record is that young.
			listed, err := kadm.NewClient(c).ListOffsetsAfterMilli(ctx, timeBase+x[0], t)
			if err != nil {
				return err
			}
			if o, _ := listed.Lookup(t, 0); o.Err != nil || o.Offset != x[1] {
				return fmt.Errorf("offset for base%+d ms: got %d (%v), want %d", x[0], o.Offset, o.Err, x[1])
			}
		}
		got, err := consume(ctx, t, 0, kgo.NewOffset().AfterMilli(timeBase+695), 30)
		if err != nil {
			return err
		}
		return same(got, want[70:], 70)
	})
	add("many_partitions_in_one_fetch_session", func(ctx context.Context) error {
		t, err := create(ctx, "session", 12, nil)
		if err != nil {
			return err
		}
		assigned := map[int32]kgo.Offset{}
		for p := int32(0); p < 12; p++ {
			assigned[p] = kgo.NewOffset().AtStart()
			if _, err := produce(ctx, t, p, records(0, int(p)+1)); err != nil {
				return err
			}
		}
		c, err := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t: assigned}))
		if err != nil {
			return err
		}
		defer c.Close()
		got := map[int32][]*kgo.Record{}
		pull := func(count int) error {
			for seen := 0; seen < count; {
				fetches := c.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					return err
				}
				fetches.EachRecord(func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], r); seen++ })
			}
			return nil
		}
		if err := pull(78); err != nil {
			return err
		}
		if _, err := produce(ctx, t, 7, []*kgo.Record{record(8, false)}); err != nil {
			return err
		}
		if err := pull(1); err != nil {
			return err
		}
		for p := int32(0); p < 12; p++ {
			count := int(p) + 1
			if p == 7 {
				count++
			}
			if err := same(got[p], records(0, count), 0); err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
		}
		return nil
	})
	add("admin", func(ctx context.Context) error {
		t, err := create(ctx, "admin", 2, map[string]string{"segment.bytes": "2097152"})
		if err != nil {
			return err
		}
		c, err := client()
		if err != nil {
			return err
		}
		defer c.Close()
		a := kadm.NewClient(c)
		if _, err := a.CreateTopic(ctx, 1, 1, nil, t); !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("creating it again was answered with %v", err)
		}
		described, err := a.DescribeTopicConfigs(ctx, t)
		if err != nil {
			return err
		}
		found := ""
		for _, x := range described[0].Configs {
			if x.Key == "segment.bytes" {
				found = x.MaybeValue()
			}
		}
		if found != "2097152" {
			return fmt.Errorf("segment.bytes is %q", found)
		}
		if _, err := produce(ctx, t, 1, records(0, 40)); err != nil {
			return err
		}
		trim := kadm.Offsets{}
		trim.Add(kadm.Offset{Topic: t, Partition: 1, At: 25, LeaderEpoch: -1})
		if _, err := a.DeleteRecords(ctx, trim); err != nil {
			return err
		}
		starts, err := a.ListStartOffsets(ctx, t)
		if err != nil {
			return err
		}
		if o, _ := starts.Lookup(t, 1); o.Offset != 25 {
			return fmt.Errorf("the log begins at %d after deletion, want 25", o.Offset)
		}
		if grown, err := a.UpdatePartitions(ctx, 5, t); err != nil || grown.Error() != nil {
			return fmt.Errorf("adding partitions: %v, %v", err, grown.Error())
		}
		if _, err := a.DeleteTopics(ctx, t); err != nil {
			return err
		}
		for i := 0; i < 100; i++ {
			listed, err := a.ListTopics(ctx)
			if err != nil {
				return err
			}
			if !listed.Has(t) {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return errors.New("the topic is listed 10 s after its deletion")
	})
	return all
}

func test() int {
	passed, failed := 0, 0
	only := os.Getenv("ONLY")
	for _, c := range cases() {
		wanted := only == ""
		for _, w := range strings.Split(only, ",") {
			wanted = wanted || w != "" && strings.Contains("franz-go/"+c.name, w)
		}
		if !wanted {
			continue
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		err := c.run(ctx)
		cancel()
		if err == nil {
			passed++
			fmt.Printf("PASS franz-go/%s [%.1f s]\n", c.name, time.Since(start).Seconds())
		} else {
			failed++
			fmt.Printf("FAIL franz-go/%s: %v [%.1f s]\n", c.name, err, time.Since(start).Seconds())
		}
	}
	fmt.Printf("%d passed, %d failed, 0 skipped\n", passed, failed)
	if failed > 0 {
		return 1
	}
	return 0
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) < 3 {
		fail(errors.New("usage: franz test|produce|consume HOST:PORT ..."))
	}
	bootstrap = os.Args[2]
	ctx := context.Background()
	switch {
	case os.Args[1] == "test":
		os.Exit(test())
	case os.Args[1] == "member":
		member(os.Args[3:])
	case os.Args[1] == "produce" && len(os.Args) == 6:
		count, err := strconv.Atoi(os.Args[5])
		fail(err)
		var rs []*kgo.Record
		for i := range count {
			rs = append(rs, record(i, true))
		}
		_, err = produce(ctx, os.Args[3], 0, rs, kgo.ProducerBatchCompression(compression(os.Args[4])))
		fail(err)
	case os.Args[1] == "consume" && len(os.Args) == 5:
		count, err := strconv.Atoi(os.Args[4])
		fail(err)
		got, err := consume(ctx, os.Args[3], 0, kgo.NewOffset().AtStart(), count)
		fail(err)
		for _, r := range got {
			fmt.Println(r.Offset, r.Timestamp.UnixMilli(), digest(r))
		}
	default:
		fail(errors.New("usage: franz test|produce|consume HOST:PORT ..."))
	}
}
