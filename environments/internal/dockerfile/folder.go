package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// ReadFile reads a Dockerfile or .dockerignore of a build folder. A task may hold
// anything under these names.
func ReadFile(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not wait
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, wrong := f.Stat(); wrong != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(wrong, fmt.Errorf("%s is not a file", name))
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, MaxBytes)
	}
	return text, err
}

// Ignored returns what the .dockerignore that belongs to a Dockerfile leaves out of
// its folder.
func Ignored(root *os.Root, dockerfile string) (*patternmatcher.PatternMatcher, error) {
	text, err := ReadFile(root, dockerfile+".dockerignore")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = ReadFile(root, ".dockerignore")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return patternmatcher.New(nil)
	}
	if err != nil {
		return nil, err
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf(".dockerignore: %w", err)
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fmt.Errorf(".dockerignore: %w", err)
	}
	return m, nil
}
