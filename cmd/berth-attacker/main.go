// Command berth-attacker does what the attacks of `berth attest` cannot do in a
// shell. It runs inside a sandbox, against the sandbox that it is in:
//
//	berth-attacker headless|chain   write 42 to /app/answer when the tests begin
//	berth-attacker agree            answer yes to each connection on port 7042
//	berth-attacker limits PID       lower the limits of a process, and print what succeeded
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/berth-eval/berth/plugins/sandbox/attacks"
)

// init keeps main on the first thread, which one of the attacks ends.
func init() { runtime.LockOSThread() }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "berth-attacker:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	work := attacks.NewWork("/app/answer", "42\n")
	switch {
	case len(args) == 1 && args[0] == "headless":
		attacks.Headless(os.Stdout, work)
	case len(args) == 1 && args[0] == "chain":
		attacks.Chain(os.Stdout, work)
	case len(args) == 1 && args[0] == "agree":
		return attacks.Agree(os.Stdout, "127.0.0.1:7042")
	case len(args) == 2 && args[0] == "limits":
		pid, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("the process id %q is not a number: %w", args[1], err)
		}
		attacks.Limits(os.Stdout, pid)
	default:
		return fmt.Errorf("expected headless, chain, agree, or limits PID, got %q", args)
	}
	return nil
}
