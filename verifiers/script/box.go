package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
)

// shell is a box in a real sandbox.
type shell struct{ client *sandbox.Client }

func dial(address string) (box, error) {
	client, err := sandbox.Dial(address)
	if err != nil {
		return nil, err
	}
	return shell{client}, nil
}

func (s shell) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	return s.client.Exec(ctx, c)
}

func (s shell) Exists(ctx context.Context, path string) (bool, error) {
	_, err := s.client.Lstat(ctx, path)
	if errors.Is(err, sandbox.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Remove uses the sandbox's own rm. A manipulated rm does no harm, because the
// caller checks again whether the file exists.
func (s shell) Remove(ctx context.Context, path string) error {
	said := output.NewTail(1 << 10)
	r, err := s.client.Exec(ctx, sandbox.Command{Argv: []string{"rm", "-rf", "--", path}, User: "0", Dir: "/", Stdout: said, Stderr: said})
	if err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("rm ended with exit code %d: %s", r.ExitCode, bytes.TrimSpace([]byte(said.String())))
	}
	there, err := s.Exists(ctx, path)
	if err == nil && there {
		err = errors.New("it is there again")
	}
	return err
}

func (s shell) Close() error { return s.client.Close() }
