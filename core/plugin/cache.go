package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/plugins"
)

// cache remembers, across programs, the digest of a binary as long as the file is
// the same, and what the binary with that digest serves: a file for each path.
// What cannot be read, or is not what was written, counts as absent: the answer
// is found again.
type cache struct{ dir string }

// cacheVersion changes with the form of the files: others are ignored.
const cacheVersion = 2

// stamp is what a file has as long as nobody wrote to it or replaced it.
type stamp struct {
	Path  string `json:"path"`
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime_ns"`
	CTime int64  `json:"ctime_ns"` // cannot be set back by whoever writes the file
}

// remembered is what is known of a binary. Without a stamp its digest has to be
// found out again.
type remembered struct {
	Version  int                   `json:"version"`
	Stamp    stamp                 `json:"stamp"`
	Digest   string                `json:"digest"`
	Protocol int                   `json:"protocol"`
	Plugins  []plugins.Description `json:"plugins"`
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, fmt.Errorf("look at plugin binary: %w", err)
	}
	s := stamp{Path: path, Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Dev, s.Inode, s.CTime = sys.Dev, sys.Ino, sys.Ctim.Nano()
	}
	return s, nil
}

// settled is how old a change must be before a file's times are trusted: a
// second change within the clock's step would not show.
const settled = 2 * time.Second

// digestOf is the SHA-256 of a binary, as "sha256:…".
func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read plugin binary: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read plugin binary %s: %w", path, err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

func (c cache) file(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:12])+".json")
}

// read is what is remembered of the binary at path; zero: nothing.
func (c cache) read(path string) (r remembered) {
	data, err := os.ReadFile(c.file(path))
	if c.dir == "" || err != nil || json.Unmarshal(data, &r) != nil || r.Version != cacheVersion || len(r.Plugins) == 0 {
		return remembered{}
	}
	for _, d := range r.Plugins {
		if d.Check() != nil {
			return remembered{}
		}
	}
	return r
}

// write is best effort: without it the next program asks again.
func (c cache) write(path string, r remembered) {
	if c.dir == "" || os.MkdirAll(c.dir, 0o700) != nil {
		return
	}
	if r.Version = cacheVersion; time.Since(time.Unix(0, r.Stamp.CTime)) <= settled {
		r.Stamp = stamp{}
	}
	if data, err := json.MarshalIndent(r, "", "  "); err == nil {
		_ = renameio.WriteFile(c.file(path), append(data, '\n'), 0o600)
	}
}
