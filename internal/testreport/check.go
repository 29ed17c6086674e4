package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// checks is the package that commands are reported under.
const checks = "checks"

// skipped is the exit code by which a command says that it could not run here;
// its last line says why. It is the convention of automake's test drivers.
const skipped = 77

// check runs argv, tries times at most until it passes or is skipped, and
// prints its life as events of `go test -json`. A command that fails, or cannot
// be started, is an event and not an error; an error means that out cannot be
// written. When ctx ends, the command and what it started get SIGTERM, and
// SIGKILL ten seconds later.
func check(ctx context.Context, name string, argv []string, tries int, out io.Writer) error {
	pkg := checks
	for ; tries > 0 && ctx.Err() == nil; tries-- {
		failed, err := try(ctx, pkg, name, argv, out)
		if err != nil || !failed {
			return err
		}
		pkg = checks + again
	}
	return nil
}

// try runs argv once and says whether it failed.
func try(ctx context.Context, pkg, name string, argv []string, out io.Writer) (failed bool, err error) {
	enc := json.NewEncoder(out)
	begin := time.Now()
	emit := func(action, text string) error {
		return enc.Encode(event{
			Time: time.Now().UTC(), Action: action, Package: pkg, Test: name,
			Elapsed: time.Since(begin).Seconds(), Output: text,
		})
	}
	if err = emit("run", ""); err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Run()
		_ = w.Close() // a pipe in memory: cannot fail
	}()
	if err = eachLine(r, func(line string) error { return emit("output", line) }); err != nil {
		_ = r.CloseWithError(err) // the command sees a closed pipe and ends
		return false, errors.Join(err, <-ended)
	}
	err = <-ended
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, emit("pass", "")
	case errors.As(err, &exit) && exit.ExitCode() == skipped:
		return false, emit("skip", "")
	}
	return true, errors.Join(emit("output", argv[0]+": "+err.Error()+"\n"), emit("fail", ""))
}

// eachLine calls f with each line of r, its line end included, until r ends or
// f fails.
func eachLine(r io.Reader, f func(string) error) error {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			if ferr := f(line); ferr != nil {
				return ferr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
