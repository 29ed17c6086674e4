package replay

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

func quote(s string) string { return strconv.Quote(s) }

// What changes from run to run by itself is ignored, and nothing else is.
func TestKindsOfValues(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{
		{"Today's date: 2026-11-22", "Today's date: 2026-11-23"},
		{"Today is Sunday, November 22, 2026.", "Today is Monday, November 23, 2026."},
		{"Current Time: 2026-11-22 23:59 (Sunday) (UTC, UTC+00:00)", "Current Time: 2026-11-23 00:01 (Monday) (UTC, UTC+00:00)"},
		{"Mon Nov  2 02:15:53 UTC 2026", "Tue Nov 24 12:15:53 UTC 2026"},
		{"\x1b[?2004lMon Nov 23 12:12:40 UTC 2026\x1b[0m", "\x1b[?2004lTue Nov 24 12:12:41 UTC 2026\x1b[0m"},
		{"Sun, 22 Nov 2026 02:15:53 GMT", "Mon, 23 Nov 2026 12:15:53 GMT"},
		{"-rw-r--r-- 1 root root 5 Nov 22 02:15 done", "-rw-r--r-- 1 root root 5 Dec  1 12:01 done"},
		{"2026-11-22T02:15:53.123456Z", "2026-11-23T12:15:53.9Z"},
		{"2026-11-22T02:15:53+00:00", "2026-11-23T02:15:53+01:00"},
		{"[Sun 2026-11-22 23:59 UTC] Do it.", "[Mon 2026-11-23 00:01 UTC] Do it."},
		{`{"output": "2026-11-22\n1795312553\ncall_A1b2C3d4E5f6\tx"}`, `{"output": "2026-11-23\n1795398953\ncall_Z9y8X7w6V5u4\tx"}`},
		{"11/22/2026, 2:15:53 AM", "11/23/2026, 11:15:53 PM"},
		{"at 1795312553 or 1795312553123", "at 1795398953 or 1795398953999"},
		{"Wall time: 0.0521 seconds", "Wall time: 1.2 seconds"},
		{"real\t0m0.012s", "real\t0m1.999s"},
		{"Took 12ms", "Took 7ms"},
		{"Chunk ID: 3fa2c1", "Chunk ID: c07d1b"},
		{"Chunk ID: 3fa2c1", "Chunk ID: 421423"},
		{"session_id: 0193b1f4-5c3e-7a10-8c55-d1a2b3c4d5e6", "session_id: 0193b1f4-5c3e-7a10-8c55-d1a2b3c4d5e7"},
		{"call_A1b2C3d4E5f6", "call_Z9y8X7w6V5u4"},
		{"msg_0123456789abcdef", "msg_fedcba9876543210"},
		{"[master (root-commit) 3f2a1bc] add", "[master (root-commit) 9d8c7b6] add"},
		{"root@0123456789ab:/app# ls", "root@other.example:/app# ls"},
		{"user@box:~$ ", "user@elsewhere:~$ "},
		{"Linux berth 6.18.5-cloud #1 SMP", "Linux other 6.12.1 #1 SMP"},
		{"/tmp/tmp.QkzbVdJxPR and /tmp/tmpab3_de9f", "/tmp/tmp.aaBbccDD12 and /tmp/tmpq9w8e7r6"},
		{"http://127.0.0.1:45123/x", "http://127.0.0.1:33001/x"},
		{"It is 12:30 now (12:30)", "It is 09:15 now (09:15)"},
		{"[1] 1234", "[1] 99"},
		{"Process running with session ID 12345", "Process running with session ID 777"},
		{"Background PIDs: 71, 72\nProcess Group PGID: 69", "Background PIDs: 171, 8\nProcess Group PGID: 70"},
	} {
		if plain(tt[0]) != plain(tt[1]) {
			t.Errorf("these differ:\n%s -> %s\n%s -> %s", tt[0], plain(tt[0]), tt[1], plain(tt[1]))
		}
	}
	for _, tt := range [][2]string{
		{"\x1b[31mMonitor", "\x1b[32mMonitor"},
		{"Write the file done.", "Write the file gone."},
		{"Today's date: 2026-11-22", "Today's date: tomorrow"},
		{"root@host:/app# ls", "root@host:/tmp# ls"},
		{"user@host:~$", "user@host:/$"},
		{"exit code 0", "exit code 1"},
		{"ID: 421423", "ID: 421424"},
		{"3.14", "2.71"},
		{"sleep 10", "sleep 20"},
		{"task_complete and tool_results_follow", "task_started and tool_results_follow"},
		{"/tmp/build/output.txt", "/tmp/build/result.txt"},
		{"version 2.1.329", "version 2.1.330"},
		{"main.go:12:30: undefined: x", "main.go:14:10: undefined: x"},
		{"http://localhost:8080", "http://localhost:8081"},
		{"100 tokens", "200 tokens"},
		{"it took 5 seconds at 12:30", "it took 5 minutes"},
		{"-rw-r--r-- 1 root root 5 Nov 22 02:15 done", "-rw-r--r-- 1 root root 6 Nov 22 02:15 done"},
		{"/var/lib/berth-agent/claude", "/var/lib/berth-agent/codex"},
	} {
		if plain(tt[0]) == plain(tt[1]) {
			t.Errorf("these do not differ: %s, %s -> %s", tt[0], tt[1], plain(tt[0]))
		}
	}
}

// A request that differs in an id, a date or a member's order gets the answer of
// the next such request of the record; one that differs in content gets none.
func TestARequestThatIsAlikeGetsTheAnswer(t *testing.T) {
	t.Parallel()
	ask := func(id, day, text string) string {
		return fmt.Sprintf(`{"model":"m","input":[{"id":%s,"text":%s},%s]}`, quote(id), quote("It is "+day+"."), quote(text))
	}
	file := record(
		t, [3]string{ask("msg_0a1b2c3d4e", "2026-11-22", "look"), "first"}, [3]string{ask("msg_1a1b2c3d4e", "2026-11-22", "look"), "second"},
		[3]string{ask("msg_2a1b2c3d4e", "2026-11-22", "go on"), "third"},
	)
	p, err := Open(file, "agent", "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	play := func(body, want, ignored string) {
		t.Helper()
		resp, by, lost := p.Answer(request(body))
		if lost != nil {
			t.Fatal(lost)
		}
		defer func() { _ = resp.Body.Close() }()
		if got, broken := io.ReadAll(resp.Body); broken != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", body, got, broken, want)
		}
		if d := by.Ignored; (d == "") != (ignored == "") || !strings.Contains(d, ignored) {
			t.Errorf("%s: ignored %q, want %q", body, d, ignored)
		}
	}
	now := ask("msg_9z9y9x9w9v", "2026-11-23", "look")
	play(now, "first", `message 0, at input[0].id: recorded "msg_0a1b2c3d4e", now "msg_9z9y9x9w9v"`)
	play(now, "first", "") // it is sent again
	play(ask("msg_8z9y9x9w9v", "2026-11-23", "look"), "second", "input[0].id")
	_, _, err = p.Answer(request(ask("msg_7z9y9x9w9v", "2026-11-23", "go off"))) //nolint:bodyclose // there is none
	var differs *DiffersError
	if !errors.As(err, &differs) || err.Error() != `the request differs from exchange 3 of the recorded run: message 1, at input[1]: recorded "go on", now "go off"` {
		t.Errorf("another text: %v", err)
	}
	play(strings.Replace(ask("msg_7z9y9x9w9v", "2026-11-23", "go on"), `{"model":"m",`, `{ "model":"m",`, 1), "third", "input[0].id")
	if _, _, err = p.Answer(request(ask("msg_6z9y9x9w9v", "2026-11-23", "go on"))); !errors.Is(err, ErrOver) { //nolint:bodyclose // there is none
		t.Errorf("one more: %v", err)
	}
}
