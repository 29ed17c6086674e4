// Package collect copies files out of a sandbox into an attempt. All of its
// input is untrusted: names, links, sizes, the archive itself. On the host it
// creates only regular files and folders below one folder.
//
// It must not run anything, and must not decide what is collected: the task
// decides that.
package collect

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/runtimedir"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// ManifestFile is the name of the manifest in the folder of artifacts.
const ManifestFile = "manifest.json"

// Status is the result of collecting one artifact.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Failed  Status = "failed"  // see Reason; what was copied before stays
	Empty   Status = "empty"   // a folder from which nothing was copied
	Skipped Status = "skipped" // an earlier artifact has the same destination
)

// Entry is one line of the manifest.
type Entry struct {
	Source      string   `json:"source"`
	Destination string   `json:"destination"` // relative to the attempt's stage folder: "artifacts/…"
	Type        string   `json:"type"`        // file, directory; empty when it was not found
	Status      Status   `json:"status"`
	Service     string   `json:"service"`
	Exclude     []string `json:"exclude"`
	Files       int64    `json:"files"`
	Bytes       int64    `json:"bytes"`
	Reason      string   `json:"reason,omitempty"`
	Dropped     []string `json:"dropped,omitempty"`      // left out: links, devices, bad names; the first of them
	DroppedMore int64    `json:"dropped_more,omitempty"` // number of further ones
	Secrets     int      `json:"secrets_cut,omitempty"`  // secret values that were masked in it

	Audience []task.Role `json:"-"` // as of the artifact

	missing bool // the path does not exist
}

// Fetch writes a path of a service's container ("" is main) to w as a tar
// archive. Names in a folder are relative to it, with "./" first; a file is one
// entry.
type Fetch func(ctx context.Context, service, path string, w io.Writer) error

// Artifact is an artifact of the task, or one that is always collected.
type Artifact struct {
	task.Artifact
	Implied bool // leave it out of the manifest if it is missing or empty
}

// Collector collects into one folder. A zero MaxBytes or MaxFiles means that of
// package bound.
type Collector struct {
	Into     string // the folder; created when it is first needed
	Workdir  string // base of relative sources
	Fetch    Fetch
	Redactor *redact.Redactor
	// Unmasked is a folder for the files that held secrets, as they were, at the same
	// paths as below Into. Empty: they are not copied there.
	Unmasked string
	Plain    bool // write no manifest
	// Known is a folder with an earlier copy of the only artifact. Files that are
	// the same there are not copied again. Empty: there is none.
	Known    string
	MaxBytes int64
	MaxFiles int64

	root         *os.Root // Into, once it is needed
	bytes, files int64
	full         string // why MaxBytes is lower than usual, if the disk is the reason
	taken        []string
}

// All collects the artifacts in order and writes the manifest, unless nothing
// was found and all were only implied. The failure of one artifact is its
// status, not an error; an error means that the host could not write, or that
// ctx ended.
func (c *Collector) All(ctx context.Context, as []Artifact) ([]Entry, error) {
	if c.MaxBytes == 0 {
		c.MaxBytes = limits.ArtifactBytes
	}
	if c.MaxFiles == 0 {
		c.MaxFiles = limits.ArtifactEntries
	}
	// Artifacts must not fill the disk: half of the free space stays for the
	// record, for the view of a verifier and for other attempts.
	if room, ok := runtimedir.Free(c.Into); ok && room/2 < c.MaxBytes && room/2 >= limits.ArtifactFills {
		c.MaxBytes, c.full = room/2, ", half of what is free on this host's disk"
	}
	defer c.close()
	entries := []Entry{}
	asked := false
	for _, a := range as {
		asked = asked || !a.Implied
		e, oneErr := c.one(ctx, a)
		if oneErr != nil {
			return entries, fmt.Errorf("collect %s: %w", a.Source, oneErr)
		}
		if a.Implied && (e.missing || e.Status == Empty) {
			continue
		}
		entries = append(entries, e)
	}
	if c.Plain || !asked && len(entries) == 0 {
		return entries, nil
	}
	root, err := c.open()
	if err != nil {
		return entries, fmt.Errorf("collect: %w", err)
	}
	b, err := c.Redactor.JSON(entries)
	if err != nil {
		return entries, fmt.Errorf("collect: %w", err)
	}
	var pretty json.RawMessage = b
	if b, err = json.MarshalIndent(pretty, "", "  "); err != nil {
		return entries, fmt.Errorf("collect: %w", err)
	}
	if err = root.RemoveAll(ManifestFile); err == nil {
		err = root.WriteFile(ManifestFile, append(b, '\n'), 0o644)
	}
	return entries, err
}

// open opens the folder.
func (c *Collector) open() (*os.Root, error) {
	if c.root != nil {
		return c.root, nil
	}
	root, err := os.OpenRoot(c.Into)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(c.Into, 0o755); err == nil {
			root, err = os.OpenRoot(c.Into)
		}
	}
	if err != nil {
		return nil, hostError{err}
	}
	c.root = root
	return root, nil
}

// Bytes returns how many bytes were copied.
func (c *Collector) Bytes() int64 { return c.bytes }

func (c *Collector) close() {
	if c.root != nil {
		_ = c.root.Close() // a folder that was only read
		c.root = nil
	}
}

// remove removes what was copied of an artifact.
func (c *Collector) remove(name string) error {
	root, err := c.open()
	if err != nil {
		return err
	}
	return root.RemoveAll(name)
}

func (c *Collector) one(ctx context.Context, a Artifact) (Entry, error) {
	source := a.Source
	if !path.IsAbs(source) {
		source = path.Join("/", c.Workdir, source)
	}
	source = path.Clean(source)
	to := a.To
	if to == "" {
		to = strings.TrimPrefix(source, "/")
	}
	to = path.Clean(to)
	e := Entry{
		Source: a.Source, Destination: path.Join("artifacts", to), Service: a.Service,
		Exclude: slices.Clone(a.Exclude), Status: OK, Audience: a.Audience,
	}
	if e.Service == "" {
		e.Service = "main"
	}
	if e.Exclude == nil {
		e.Exclude = []string{}
	}
	switch {
	case !filepath.IsLocal(filepath.FromSlash(to)) || to == ManifestFile || to == ".":
		e.Status, e.Reason = Failed, fmt.Sprintf("%q is not a place below the artifacts", to)
		return e, nil
	case slices.Contains(c.taken, to):
		e.Status, e.Reason = Skipped, "an earlier artifact has this destination"
		return e, nil
	}
	x := &extraction{c: c, e: &e, to: filepath.FromSlash(to), implied: a.Implied}
	err := c.fetch(ctx, a.Service, source, x.run)
	if e.Type != "" {
		c.taken = append(c.taken, to)
	}
	_, ours := errors.AsType[hostError](err)
	if ours && untrusted.NoSpace(err) && c.bytes >= limits.ArtifactFills {
		// The artifacts filled the disk: treat this as if they had been too
		// large, and remove them, because the result needs the space.
		ours, err = false, errors.Join(fmt.Errorf("no room on this host's disk after %d bytes: %w", c.bytes, err), c.remove(x.to))
	}
	switch {
	case ours:
		return e, err
	case err != nil:
		e.Status, e.Reason, e.missing = Failed, c.Redactor.Text(err.Error()), errors.Is(err, sandbox.ErrNotFound)
	case e.Type == "directory" && e.Files == 0:
		e.Status = Empty
	}
	return e, ctx.Err()
}

// fetch passes the archive of a path to take. An error of take comes first; the
// error of the sandbox then only says that nothing reads any more.
func (c *Collector) fetch(ctx context.Context, service, source string, take func(*tar.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	var sent error
	done := make(chan struct{})
	go func() {
		defer close(done)
		sent = c.Fetch(ctx, service, source, w)
		_ = w.CloseWithError(sent)
	}()
	err := take(tar.NewReader(r))
	if err == nil {
		_, _ = io.Copy(io.Discard, r) // the padding after the end
	}
	_ = r.CloseWithError(errors.New("reader closed"))
	cancel()
	<-done
	if err == nil || errors.Is(err, sent) {
		return sent
	}
	return err
}

// hostError marks a failure of the host, such as a full disk.
type hostError struct{ err error }

func (h hostError) Error() string { return h.err.Error() }
func (h hostError) Unwrap() error { return h.err }
