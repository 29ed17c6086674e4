package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/suggest"
)

// SearchPath returns the folders that are searched for plugin binaries: the
// folder plugins next to the executable, then the folders of
// $BERTH_PLUGIN_PATH, then the user's own ($XDG_DATA_HOME/berth/plugins). The
// last one is left out if it belongs to another user or cannot be read: after
// su, HOME is often that of the previous user.
func SearchPath(getenv func(string) string) []string {
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), "plugins"))
	}
	for _, d := range filepath.SplitList(getenv("BERTH_PLUGIN_PATH")) {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	if own := OwnFolder(getenv); own != "" && trusted(own) {
		dirs = append(dirs, own)
	}
	return dirs
}

// OwnFolder returns the folder for plugins of this user, which need not exist, or
// an empty string if there is no home.
func OwnFolder(getenv func(string) string) string {
	data := getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) && getenv("HOME") != "" {
		data = filepath.Join(getenv("HOME"), ".local", "share")
	}
	if !filepath.IsAbs(data) {
		return ""
	}
	return filepath.Join(data, "berth", "plugins")
}

// trusted reports whether a folder of plugins, which need not exist, belongs to
// this user or root and can be read.
func trusted(dir string) bool {
	f, err := os.Open(dir + string(filepath.Separator) + ".") // only a folder, never a pipe
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return info.IsDir() && (!ok || st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// candidate is a program that is a plugin by its name. If it is not to be
// started, fault says why.
type candidate struct {
	program

	fault error
}

// candidates lists the plugins in dirs, in search order, each once, and the
// executable files in them that are not started because of their names. A folder
// that does not exist is not an error.
func candidates(dirs []string) (found []candidate, ignored []string, err error) {
	l := &listing{}
	for _, dir := range dirs {
		if dir, err = filepath.Abs(dir); err == nil {
			err = l.folder(dir)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("look for plugins: %w", err)
		}
	}
	return l.found, l.ignored, nil
}

// listing is what candidates has found so far.
type listing struct {
	found   []candidate
	ignored []string
	seen    []os.FileInfo // of the programs in found
}

func (l *listing) folder(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fault := SafeFolder(dir); fault != nil && len(list) > 0 {
		l.found = append(l.found, candidate{program{path: dir}, fault})
		return nil
	}
	for _, e := range list {
		p, fault := programIn(dir, e.Name())
		if path := filepath.Join(dir, e.Name()); errors.Is(fault, errNotNamed) && !slices.Contains(l.ignored, path) {
			l.ignored = append(l.ignored, path)
		}
		if p.path != "" {
			l.add(p, fault)
		}
	}
	return nil
}

func (l *listing) add(p program, fault error) {
	if info, err := os.Stat(p.path); err == nil {
		if slices.ContainsFunc(l.seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
			return
		}
		l.seen = append(l.seen, info)
	}
	if fault == nil {
		fault = p.safe()
	}
	l.found = append(l.found, candidate{p, fault})
}

// scan finds the binaries and what they serve, once, and logs anything unusual.
// The caller holds h.mu.
func (h *Host) scan(ctx context.Context, log zerolog.Logger) error {
	if h.stopped {
		return ErrStopped
	}
	if h.scanned {
		return nil
	}
	list, ignored, err := candidates(h.opts.Dirs)
	if err != nil {
		return err
	}
	for i, path := range h.opts.Programs {
		p, err := programAt(path)
		if err != nil {
			return fmt.Errorf("look for plugin %s: %w", path, err)
		}
		list = slices.Insert(list, i, candidate{p, nil})
	}
	binaries := make([]*binary, len(list))
	faults := make([]error, len(list))
	var asking errgroup.Group
	asking.SetLimit(4)
	for i, c := range list {
		asking.Go(func() error {
			binaries[i] = newBinary(h, c.program)
			if faults[i] = c.fault; c.fault == nil {
				faults[i] = binaries[i].identify(ctx)
			}
			return nil
		})
	}
	_ = asking.Wait() // errors are in faults
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ask plugins what they serve: %w", err)
	}
	for i, b := range binaries {
		h.add(b, faults[i], log)
	}
	h.ignored, h.scanned = ignored, true
	return nil
}

// add registers what one binary serves.
func (h *Host) add(b *binary, fault error, log zerolog.Logger) {
	h.binaries = append(h.binaries, b)
	if fault != nil {
		log.Warn().Str("path", b.path).Err(fault).Msg("plugin cannot be used")
		h.entries = append(h.entries, Entry{Path: b.path, Digest: b.digest, Error: fault.Error()})
		return
	}
	for _, d := range b.serves {
		e := Entry{Description: d, Protocol: b.protocol, Path: b.path, Digest: b.digest}
		key := id{d.Kind, d.Name}
		if first := h.plugins[key]; first != nil {
			e.ShadowedBy = first.binary.path
			log.Warn().Str("plugin", d.Name).Str("kind", string(d.Kind)).Str("used", first.binary.path).Str("ignored", b.path).
				Msg("two binaries serve the same plugin")
		} else {
			h.plugins[key] = &served{Description: d, binary: b}
		}
		h.entries = append(h.entries, e)
	}
}

func (h *Host) lookup(ctx context.Context, kind plugins.Kind, name string) (*served, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.scan(ctx, h.opts.Log); err != nil {
		return nil, err
	}
	if s := h.plugins[id{kind, name}]; s != nil {
		return s, nil
	}
	return nil, h.unknown(kind, name)
}

// unknown tells the user what to do about a name that no binary serves.
func (h *Host) unknown(kind plugins.Kind, name string) error {
	var known, broken, served []string
	rightName := false // of the wrong kind
	for _, e := range h.entries {
		named := filepath.Base(e.Path) == plugins.ProgramPrefix+name // the program has the name that was asked for
		switch {
		case e.Error != "" && named:
			return fmt.Errorf("%w: %s %q: %s", ErrUnknown, kind, name, e.Error)
		case e.Error != "":
			broken = append(broken, fmt.Sprintf("%s cannot be used: %s", e.Path, e.Error))
		case e.Kind == kind && !slices.Contains(known, e.Name):
			known = append(known, e.Name)
		case e.Name == name:
			rightName = true
			broken = append(broken, fmt.Sprintf("%s serves a plugin of that name, but it is of kind %s", e.Path, e.Kind))
		}
		if named && e.Name != name {
			served = append(served, fmt.Sprintf("%s %q", e.Kind, e.Name))
		}
	}
	var hint strings.Builder
	if best := suggest.Word(name, known); best != "" && !rightName {
		fmt.Fprintf(&hint, ": did you mean %q?", best)
	}
	if slices.Sort(known); len(known) > 0 {
		fmt.Fprintf(&hint, "\n%ss that were found: %s", kind, strings.Join(known, ", "))
	}
	fmt.Fprintf(&hint, "\nsearched (set BERTH_PLUGIN_PATH to search more folders): %s", strings.Join(h.opts.Dirs, ", "))
	if len(served) > 0 {
		fmt.Fprintf(&hint, "\nthe program %s%s serves: %s", plugins.ProgramPrefix, name, strings.Join(served, ", "))
	}
	if len(h.ignored) > 0 {
		broken = append(broken, Ignored(h.ignored))
	}
	for _, b := range broken {
		hint.WriteString("\n" + b)
	}
	return fmt.Errorf("%w: no %s %q%s", ErrUnknown, kind, name, hint.String())
}

// Ignored says why executable files in plugin folders are not started. There must
// be at least one.
func Ignored(paths []string) string {
	const most = 5
	more := ""
	if n := len(paths) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("not started: %s%s: the name of a plugin is %sNAME, with lower case letters, digits, - and _",
		strings.Join(paths[:min(len(paths), most)], ", "), more, plugins.ProgramPrefix)
}
