package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/rs/zerolog"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/fault"
)

// binary is one plugin binary, with its identity and its process.
type binary struct {
	host *Host
	program
	log    zerolog.Logger
	cache  cache
	digest string

	// Set by identify, which runs before anything else; read-only afterwards.
	serves   []plugins.Description
	protocol int
	env      []string // names that the plugins of the binary asked for

	turn chan struct{} // holds one token; its holder may change the fields below
	file stamp         // of the program that was identified, or was found to be the same
	bad  crashes

	mu      sync.Mutex
	proc    *process // nil: never started, or its end was already counted
	starts  int      // number of processes started, including proc
	stopped bool
}

// crashes counts unexpected exits of processes and failed starts in a row.
type crashes struct {
	count int
	last  error
}

const (
	// steady is how long a process must live for a later crash to count as the
	// first in a row.
	steady = time.Minute
	// describeTime is how long a binary may take to describe what it serves.
	describeTime = 10 * time.Second
)

func newBinary(h *Host, p program) *binary {
	b := &binary{
		host: h, program: p, log: h.opts.Log.With().Str("plugin", nameOf(p.path)).Logger(),
		cache: cache{h.opts.Cache}, turn: make(chan struct{}, 1),
	}
	b.turn <- struct{}{}
	return b
}

// identify determines the digest of the binary and what it serves, from the
// cache or by starting it once.
func (b *binary) identify(ctx context.Context) (err error) {
	if b.file, err = b.stamp(); err != nil {
		return err
	}
	known := b.cache.read(b.path)
	if b.digest = known.Digest; known.Stamp != b.file {
		if b.digest, err = b.program.digest(); err != nil {
			return err
		}
		if known.Digest != b.digest {
			if known.Plugins, known.Protocol, err = b.ask(ctx); err != nil {
				return err
			}
		}
		known.Stamp, known.Digest = b.file, b.digest
		b.cache.write(b.path, known)
	}
	b.serves, b.protocol = known.Plugins, known.Protocol
	for _, d := range b.serves {
		b.env = append(b.env, d.Env...)
	}
	return nil
}

// ask starts the binary only to get its description.
func (b *binary) ask(ctx context.Context) ([]plugins.Description, int, error) {
	p, err := b.host.start(ctx, b, nil)
	if err != nil {
		return nil, 0, err
	}
	defer p.stop()
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	list, err := plugins.Describe(ctx, fault.Client(p.conn))
	if err != nil {
		return nil, 0, fmt.Errorf("plugin %s: %w", b.path, err)
	}
	return list, p.protocol, nil
}

// current returns the process if it is running.
func (b *binary) current() (*process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, ErrStopped
	}
	if b.proc != nil && !b.proc.ended() {
		return b.proc, nil
	}
	return nil, nil
}

// acquire returns the running process, and starts one if there is none. Other
// callers wait for a start in progress as long as their contexts allow.
func (b *binary) acquire(ctx context.Context) (*process, error) {
	if p, err := b.current(); p != nil || err != nil {
		return p, err
	}
	select {
	case <-b.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for plugin %s to start: %w", b.name(), ctx.Err())
	}
	defer func() { b.turn <- struct{}{} }()
	if p, err := b.current(); p != nil || err != nil { // another caller started it
		return p, err
	}
	b.countCrash()
	if b.bad.count >= b.host.maxCrashes {
		return nil, fmt.Errorf("%w: %s is not started again: it failed %d times in a row, the last time: %w",
			ErrPluginGone, b.path, b.bad.count, b.bad.last)
	}
	if err := b.unchanged(); err != nil {
		return nil, err
	}
	p, err := b.host.start(ctx, b, b.env)
	if err != nil {
		if ctx.Err() == nil {
			b.fail(err)
		}
		return nil, err
	}
	b.mu.Lock()
	if b.stopped {
		b.mu.Unlock()
		p.stop()
		return nil, ErrStopped
	}
	b.proc = p
	b.starts++
	b.mu.Unlock()
	return p, nil
}

// startOwn starts an extra process of the binary, which acquire does not use. The
// caller stops it.
func (b *binary) startOwn(ctx context.Context) (*process, error) {
	select {
	case <-b.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for plugin %s to start: %w", b.name(), ctx.Err())
	}
	err := b.unchanged()
	b.turn <- struct{}{}
	if err != nil {
		return nil, err
	}
	return b.host.start(ctx, b, b.env)
}

// incarnation returns the number, from 1, of the process that answers the next
// call: the running one, or the one that would have to be started.
func (b *binary) incarnation() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil && !b.proc.ended() {
		return b.starts
	}
	return b.starts + 1
}

// countCrash counts the end of the previous process. The caller holds the
// token.
func (b *binary) countCrash() {
	b.mu.Lock()
	p := b.proc
	b.proc = nil
	b.mu.Unlock()
	if p == nil {
		return
	}
	p.free()
	if time.Since(p.started) > steady {
		b.bad = crashes{}
	}
	b.fail(errors.New(p.howItEnded()))
}

func (b *binary) fail(err error) {
	b.bad.count++
	b.bad.last = err
	b.log.Warn().Int("crashes", b.bad.count).Msg("plugin ended, and is started again when it is needed")
}

// unchanged refuses a binary that differs from the one that was identified,
// because a run would record the wrong digest.
func (b *binary) unchanged() error {
	now, err := b.stamp()
	if err != nil {
		return err
	}
	if now == b.file {
		return nil
	}
	digest, err := b.program.digest()
	if err != nil {
		return err
	}
	if digest != b.digest {
		return fmt.Errorf("plugin %s was replaced while this program runs (%.15s before, %.15s now): start it again", b.path, b.digest, digest)
	}
	b.file = now
	return nil
}

// stop ends the process permanently.
func (b *binary) stop() {
	b.mu.Lock()
	b.stopped = true
	p := b.proc
	b.mu.Unlock()
	if p != nil {
		p.stop()
	}
	<-b.turn // a start in progress sees stopped, and stops its process
	b.turn <- struct{}{}
}

// names returns the plugins of the binary, for messages.
func (b *binary) names() string {
	var names []string
	for _, d := range b.serves {
		if !slices.Contains(names, d.Name) {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		return b.name()
	}
	return strings.Join(names, ", ")
}

// cache stores, in a file for each path, the digest of a binary, valid as long
// as its files are unchanged, and what the binary with that digest serves. It
// outlives the program. A cache file that cannot be read or is damaged counts
// as absent, and the answer is computed again.
type cache struct{ dir string }

// cacheVersion changes with the format of the files; files of other versions
// are ignored.
const cacheVersion = 3

// remembered is a cache entry for a binary. Without a valid stamp the digest
// has to be computed again.
type remembered struct {
	Version  int                   `json:"version"`
	Stamp    stamp                 `json:"stamp"`
	Digest   string                `json:"digest"`
	Protocol int                   `json:"protocol"`
	Plugins  []plugins.Description `json:"plugins"`
}

// settled is how old a change must be before a file's times are trusted: a
// second change within one tick of the clock would not be visible.
const settled = 2 * time.Second

func (c cache) file(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(c.dir, hex.EncodeToString(sum[:12])+".json")
}

// read returns the entry for the binary at path; the zero value if there is
// none.
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

// write is best effort: if it fails, the next program asks the binary again.
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
