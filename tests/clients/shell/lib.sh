# Cases for the shell programs: `equal NAME GOT WANT`, `succeeds NAME COMMAND...`, `skip NAME WHY`, and `closing` at the end.
passed=0 failed=0 skipped=0

wanted() { # NAME: is it among the words of ONLY?
  [ -z "${ONLY:-}" ] && return 0
  local word
  for word in ${ONLY//,/ }; do [[ "$SUITE/$1" == *"$word"* ]] && return 0; done
  return 1
}
pass() { passed=$((passed + 1)); echo "PASS $SUITE/$1"; }
fail() { failed=$((failed + 1)); echo "FAIL $SUITE/$1: ${2:0:600}"; }
skip() { skipped=$((skipped + 1)); echo "SKIP $SUITE/$1: $2"; }
equal() {
  wanted "$1" || return 0
  if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "got '${2:0:200}', want '${3:0:200}'"; fi
}
contains() { # NAME TEXT PART
  wanted "$1" || return 0
  if [[ "$2" == *"$3"* ]]; then pass "$1"; else fail "$1" "'${2: -300}' does not contain '$3'"; fi
}
closing() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
topic() { echo "t-$1-$$-$RANDOM$RANDOM"; }
