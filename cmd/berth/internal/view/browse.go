package view

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/berth-eval/berth/core/store/node"
)

// Browse opens an address of Server.Address in the browser of the desktop, if there
// is one. Other users see the arguments of every program, so that the browser gets a
// file that only this user can read, and the token stands in it. leave removes the
// file; it is never nil.
func Browse(ctx context.Context, address string) (leave func(), err error) {
	leave = func() {}
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return leave, nil // a machine without a screen
	}
	program, err := exec.LookPath("xdg-open")
	if err != nil {
		return leave, nil //nolint:nilerr // a desktop without a browser that it knows
	}
	parent, err := node.Dir()
	if err != nil {
		return leave, err
	}
	dir, err := os.MkdirTemp(parent, "view-") // closed to others
	if err != nil {
		return leave, err
	}
	file := filepath.Join(dir, "open.html")
	page := fmt.Sprintf("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\"><a href=\"%[1]s\">berth view</a>\n", html.EscapeString(address))
	if err = os.WriteFile(file, []byte(page), 0o600); err == nil {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), program, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends the server, not the browser
		if err = cmd.Start(); err == nil {
			err = cmd.Process.Release()
		}
	}
	if err != nil {
		return leave, errors.Join(err, os.RemoveAll(dir))
	}
	return func() { _ = os.RemoveAll(dir) }, nil
}
