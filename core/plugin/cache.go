package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/plugins"
)

// cache remembers, across programs, the digest of a file as long as the file is
// the same, and what the binary with a digest serves. What cannot be read, or
// is not what was written, counts as absent: the answer is found again.
type cache struct{ dir string }

// cacheVersion changes with the form of the files: others are ignored.
const cacheVersion = 1

// stamp is what a file has as long as nobody wrote to it or replaced it.
type stamp struct {
	Path  string `json:"path"`
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime_ns"`
	CTime int64  `json:"ctime_ns"` // cannot be set back by whoever writes the file
}

type digestRecord struct {
	Version int    `json:"version"`
	Stamp   stamp  `json:"stamp"`
	Digest  string `json:"digest"`
}

type describeRecord struct {
	Version  int                   `json:"version"`
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

// digest is the SHA-256 of a binary, as "sha256:…".
func (c cache) digest(path string) (string, stamp, error) {
	s, err := stampOf(path)
	if err != nil {
		return "", s, err
	}
	name := "digest-" + short(path) + ".json"
	var known digestRecord
	if c.read(name, &known) && known.Version == cacheVersion && known.Stamp == s && strings.HasPrefix(known.Digest, "sha256:") {
		return known.Digest, s, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", s, fmt.Errorf("read plugin binary: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", s, fmt.Errorf("read plugin binary %s: %w", path, err)
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	if time.Since(time.Unix(0, s.CTime)) > settled {
		c.write(name, digestRecord{Version: cacheVersion, Stamp: s, Digest: digest})
	}
	return digest, s, nil
}

// describe is what the binary with that digest said that it serves.
func (c cache) describe(digest string) (list []plugins.Description, protocol int, ok bool) {
	var known describeRecord
	if !c.read(describeName(digest), &known) || known.Version != cacheVersion || known.Digest != digest || len(known.Plugins) == 0 {
		return nil, 0, false
	}
	for _, d := range known.Plugins {
		if d.Check() != nil {
			return nil, 0, false
		}
	}
	return known.Plugins, known.Protocol, true
}

func (c cache) remember(digest string, protocol int, list []plugins.Description) {
	c.write(describeName(digest), describeRecord{Version: cacheVersion, Digest: digest, Protocol: protocol, Plugins: list})
}

func describeName(digest string) string {
	return "describe-" + strings.TrimPrefix(digest, "sha256:") + ".json"
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}

func (c cache) read(name string, into any) bool {
	if c.dir == "" {
		return false
	}
	data, err := os.ReadFile(filepath.Join(c.dir, name))
	return err == nil && json.Unmarshal(data, into) == nil
}

// write is best effort: without it the next program asks again.
func (c cache) write(name string, v any) {
	if c.dir == "" || os.MkdirAll(c.dir, 0o700) != nil {
		return
	}
	if data, err := json.MarshalIndent(v, "", "  "); err == nil {
		_ = renameio.WriteFile(filepath.Join(c.dir, name), append(data, '\n'), 0o600)
	}
}
