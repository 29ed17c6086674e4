// Package base keeps the data that is made once per machine and user and that
// all sandboxes share: the state folder, the copy of /etc and the skeleton of
// /usr.
//
// It only reads the host and writes below its own folder. It must not know
// namespaces or sandboxes.
package base

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/plugins/runtimedir"
)

// version is the version of everything below a state folder. Another version
// uses another folder, so two builds never read each other's state.
const version = "local-1"

// State is a folder on node-local disk that belongs to us alone.
type State struct {
	Boxes string // records of sandboxes
	Work  string // for files that no other process opens by name

	bases []func() (string, error) // folders for copies of the host, best first
	base  string                   // the one in use, once UseBase has found it
}

// Places are the possible folders for a user's state. Each function finds or
// makes a folder that no other user can write to.
type Places struct {
	Top   func() (string, error)   // for data of current runs: see package runtimedir
	Cache []func() (string, error) // for copies of the host, best first: ~/.cache, which no cleaner removes
}

// Open finds and makes the folders of this user and version.
func Open(p Places) (*State, error) {
	top, err := p.Top()
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	s := &State{}
	mine := filepath.Join(top, version)
	s.Boxes, s.Work = filepath.Join(mine, "sandboxes"), filepath.Join(mine, "work")
	for _, dir := range []string{mine, s.Boxes, s.Work} {
		if err := runtimedir.Make(dir); err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
	}
	// Cleaners of /tmp remove old empty folders, and the skeleton consists only
	// of these. So the state folder is the last choice for it.
	for _, cache := range p.Cache {
		s.bases = append(s.bases, func() (string, error) {
			dir, err := cache()
			return filepath.Join(dir, version), err
		})
	}
	s.bases = append(s.bases, func() (string, error) { return filepath.Join(mine, "base"), nil })
	return s, nil
}

// In finds Berth's folder in one that belongs to this user, such as ~/.cache.
func In(parent string) func() (string, error) {
	return func() (string, error) {
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return "", err
		}
		if err := runtimedir.Ours(parent); err != nil {
			return "", err
		}
		dir := filepath.Join(parent, "berth")
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		return dir, runtimedir.Ours(dir)
	}
}

// UseBase chooses the folder for copies of the host: the first one that is ours
// and on this machine, in which a file can be written, and for which use
// succeeds. use may make copies, because a disk may be full before they are
// complete.
func (s *State) UseBase(use func(dir string) error) error {
	return s.TryBase(func(dir string) error {
		s.base = dir
		return use(dir)
	})
}

// TryBase checks whether UseBase would find a folder, without choosing it.
func (s *State) TryBase(use func(dir string) error) error {
	var errs []error
	for _, choice := range s.bases {
		dir, err := choice()
		for _, step := range []func(string) error{runtimedir.Make, runtimedir.Local, runtimedir.Writable, use} {
			if err == nil {
				err = step(dir)
			}
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no folder for copies of the host: %w", errors.Join(errs...))
}
