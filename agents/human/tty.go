package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// tty is the person's terminal. The plugin opens it by its name. Keys like Ctrl-C
// go to the job that runs in the foreground there, while the terminal is not raw.
type tty struct {
	file *os.File
	fd   int         // of file, which Fd would make blocking
	was  *term.State // before it was raw; nil: it is not
}

// open opens a terminal. Nothing but a terminal is opened.
func open(path string) (*tty, error) {
	fi, err := os.Stat(path)
	if err == nil && fi.Mode()&os.ModeCharDevice == 0 {
		err = errors.New("it is not a terminal")
	}
	var f *os.File
	if err == nil {
		// Without blocking, so that a read can be given up.
		f, err = os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	}
	fd := 0
	if err == nil {
		if fd = int(f.Fd()); !term.IsTerminal(fd) {
			err = errors.Join(errors.New("it is not a terminal"), f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the terminal %s of the person cannot be used: %w. The command tty prints the name of a terminal", path, err)
	}
	// If the terminal is the one that berth was started from, this process runs in the
	// background there, and would be stopped when it reads. So it leaves it, which
	// fails for any other terminal.
	_ = unix.IoctlSetInt(fd, unix.TIOCNOTTY, 0)
	if err = syscall.SetNonblock(fd, true); err != nil { // Fd made it blocking
		return nil, errors.Join(err, f.Close())
	}
	return &tty{file: f, fd: fd}, nil
}

func (t *tty) close() {
	t.cooked()
	_ = t.file.Close()
}

// raw passes on every key as it is.
func (t *tty) raw() error {
	was, err := term.MakeRaw(t.fd)
	if err == nil {
		t.was = was
	}
	return err
}

// cooked lets the terminal edit lines, as before raw.
func (t *tty) cooked() {
	if t.was != nil {
		_ = term.Restore(t.fd, t.was)
		t.was = nil
	}
}

// size returns rows and columns.
func (t *tty) size() (rows, columns int) {
	columns, rows, err := term.GetSize(t.fd)
	if err != nil || rows < 1 || columns < 1 {
		return 24, 80
	}
	return rows, columns
}

// say prints lines for the person. The text may be a task's: it does not steer the
// terminal.
func (t *tty) say(text string) {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
	_ = t.write([]byte(strings.ReplaceAll("\n"+text+"\n", "\n", "\r\n")))
}

// errHungUp means that the terminal was closed.
var errHungUp = errors.New("the person's terminal was closed")

// pollPause is how often a wait looks whether it is to end.
const pollPause = 100 * time.Millisecond

// read waits for keys until ctx ends.
func (t *tty) read(ctx context.Context, b []byte) (int, error) {
	for {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, err := syscall.Read(t.fd, b)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
			select {
			case <-ctx.Done():
			case <-time.After(pollPause / 10):
			}
		default: // 0 bytes, or EIO
			return 0, errHungUp
		}
	}
}

// ask prints a question and returns a line of the answer.
func (t *tty) ask(ctx context.Context, question string) (string, error) {
	t.cooked()
	if err := t.write([]byte("\r\n" + question)); err != nil {
		return "", err
	}
	r := bufio.NewReader(reader(func(b []byte) (int, error) { return t.read(ctx, b) }))
	line, err := r.ReadString('\n')
	return strings.TrimSpace(line), err
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// write writes all of b, however slow the terminal is.
func (t *tty) write(b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(t.fd, b)
		if n > 0 {
			b = b[n:]
		}
		switch {
		case err == nil:
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
			time.Sleep(pollPause / 20)
		default:
			return errHungUp
		}
	}
	return nil
}
