package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// crowded is how many trials run at the same time.
const crowded = 16

// crowd measures the memory, disk and time of 16 concurrent trials of a CLI on
// `local`, compared with the same CLI started 16 times by hand. The provider
// answers the first requests only when all 16 have arrived, so that all are
// running at the same time. Memory is read then, and every half second.
//
// Memory is the sum over all processes involved: the core, its plugins,
// sandboxd, the CLIs and their tools, without the benchmark itself. PSS divides
// a page that several processes have among them, so shared pages are counted
// once. The file systems of the sandboxes are also in memory; they are reported
// separately. Processor time is that of all processes, as getrusage counts
// those that were waited for.
func (b *bench) crowd(ctx context.Context, f *figures, p program) error {
	m, err := b.meter(ctx, p, crowded, crowded)
	if errors.Is(err, errMissing) {
		f.skipped = append(f.skipped, fmt.Sprintf("%d trials of %s at once: %v", crowded, p.name, err))
		return nil
	}
	if err != nil {
		return err
	}
	defer m.close()
	ours, err := m.together(ctx, m.ours, func() error {
		_, failed := b.berth(ctx, "run", m.dir, "--runs", m.runs, "--require", "passed = planned")
		return failed
	})
	if err != nil {
		return err
	}
	var hands [crowded]handed
	theirs, err := m.together(ctx, m.theirs, func() error {
		var all sync.WaitGroup
		errs := make([]error, crowded)
		for i := range crowded {
			all.Go(func() { hands[i], errs[i] = m.hand(ctx, filepath.Join(m.homes, strconv.Itoa(i))) })
		}
		all.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	theirs.cpu = 0
	for _, h := range hands { // without the time to start it in its mount namespace
		theirs.cpu += h.CPU
	}
	kept, homes, whole := onDisk(m.runs)/crowded, onDisk(m.homes)/crowded, onDisk(filepath.Dir(m.start.bundle))
	a, c := ours.peak, theirs.peak
	what := fmt.Sprintf("%d trials of %s at once: ", crowded, p.name)
	f.add(what+"all passed, wall time", fmt.Sprintf("%.1f s", ours.wall.Seconds()), fmt.Sprintf("by hand %.1f s", theirs.wall.Seconds()), "", "")
	f.add(what+"processor time of each", fmt.Sprintf("%d ms", (ours.cpu/crowded).Milliseconds()), fmt.Sprintf("by hand %d ms", (theirs.cpu/crowded).Milliseconds()), fmt.Sprintf("%+.0f ms", float64((ours.cpu-theirs.cpu)/crowded)/float64(time.Millisecond)), "")
	f.add(what+"peak memory, PSS", mib(a.all().pss), "by hand "+mib(c.all().pss), fmt.Sprintf("%.2f ×", float64(a.all().pss)/float64(c.all().pss)), "printed")
	f.add(what+"the same moment, RSS", mib(a.all().rss), "by hand "+mib(c.all().rss), "", "")
	f.add(what+"of the PSS, the CLIs and their tools", mib(a[ofCLI].pss+a[ofTools].pss), "by hand "+mib(c[ofCLI].pss+c[ofTools].pss), "", "")
	f.add(what+"of the PSS, core; plugins; sandboxd", mib(a[ofCore].pss)+"; "+mib(a[ofPlugins].pss)+"; "+mib(a[ofSandboxd].pss),
		"", fmt.Sprintf("%.1f %% of all", 100*float64(a[ofCore].pss+a[ofPlugins].pss+a[ofSandboxd].pss)/float64(a.all().pss)), "a small part")
	f.add(what+"pages of the bundle in memory", mib(a[ofCLI].file), "each counted for each: "+mib(a[ofCLI].mapped),
		fmt.Sprintf("%.1f times shared", float64(a[ofCLI].mapped)/float64(a[ofCLI].file)), "page cache shared")
	f.add(what+"disk, the bundle", mib(whole), fmt.Sprintf("besides for each: sandbox %s in memory, record %s", mib(ours.inside/crowded), mib(kept)),
		"by hand "+mib(homes)+" for each", "bundle on disk once")
	return nil
}

func mib(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d MB", n>>20)
}

// gathering is what many concurrent trials used.
type gathering struct {
	wall, cpu time.Duration
	peak      census
	inside    int64 // bytes in all of the sandboxes' own file systems
}

// together runs many CLIs at the same time, and measures until they are done.
func (m *meter) together(ctx context.Context, p *provider, do func() error) (g gathering, err error) {
	var mu sync.Mutex
	look := func() {
		c := count(m.b.bin)
		mu.Lock()
		defer mu.Unlock()
		if c.all().pss > g.peak.all().pss {
			g.peak = c
		}
	}
	open, come := make(chan struct{}), 0
	p.during(func(ctx context.Context) {
		mu.Lock()
		come++
		last := come == crowded
		mu.Unlock()
		if last {
			look()
			g.inside = inSandboxes()
			close(open)
		}
		select {
		case <-open:
		case <-ctx.Done():
		}
	})
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for t := time.NewTicker(500 * time.Millisecond); ; {
			select {
			case <-t.C:
				look()
			case <-watching.Done():
				t.Stop()
				return
			}
		}
	})
	before, began := children(), time.Now()
	err = do()
	g.wall, g.cpu = time.Since(began), children()-before
	stop()
	watch.Wait()
	if err == nil && come != crowded {
		err = fmt.Errorf("%d first requests, want %d", come, crowded)
	}
	return g, err
}

// children returns the processor time of all processes that were started and
// waited for.
func children() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// kind says which part a process belongs to.
type kind int

// The kinds.
const (
	ofCore kind = iota
	ofPlugins
	ofSandboxd // and the program that builds the sandbox
	ofCLI
	ofTools // started by the CLI
	kinds
)

// memory is the memory of some processes, in bytes.
type memory struct {
	pss, rss int64
	file     int64 // of pss, pages of files
	mapped   int64 // of rss, pages of files
}

// census is the memory of all descendants of this process.
type census [kinds]memory

func (c census) all() (sum memory) {
	for _, m := range c {
		sum.pss, sum.rss, sum.file, sum.mapped = sum.pss+m.pss, sum.rss+m.rss, sum.file+m.file, sum.mapped+m.mapped
	}
	return sum
}

// count reads the memory of all descendants of this process, except those that
// only start a CLI by hand.
func count(bin string) (c census) {
	self, _ := os.Readlink("/proc/self/exe") // "" matches no process
	for pid, p := range family(os.Getpid()) {
		if p.exe == self || p.exe == "" {
			continue
		}
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		k := &c[kindOf(bin, p.exe)]
		roll := table(filepath.Join(dir, "smaps_rollup"))
		k.pss += roll["Pss"]
		k.rss += roll["Rss"]
		k.file += roll["Pss_File"]
		k.mapped += table(filepath.Join(dir, "status"))["RssFile"]
	}
	return c
}

func kindOf(bin, exe string) kind {
	switch {
	case exe == filepath.Join(bin, "berth"):
		return ofCore
	case strings.HasPrefix(exe, filepath.Join(bin, "plugins")+"/"):
		return ofPlugins
	case strings.Contains(filepath.Base(exe), "sandboxd"), strings.HasPrefix(exe, "/berth/"):
		return ofSandboxd
	case strings.HasPrefix(exe, bundle.Place+"/"):
		return ofCLI
	default:
		return ofTools
	}
}

// table reads lines such as "Pss:   12 kB", in bytes.
func table(file string) map[string]int64 {
	out := map[string]int64{}
	text, err := os.ReadFile(file)
	if err != nil {
		return out // the process has ended
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) == 2 && f[1] == "kB" {
			n, _ := strconv.ParseInt(f[0], 10, 64)
			out[name] = n << 10
		}
	}
	return out
}

// inSandboxes returns how many bytes the file systems of all running CLIs
// contain, each file system once: those of the sandboxes, which are in memory.
func inSandboxes() (sum int64) {
	seen := map[syscall.Fsid]bool{}
	for pid := range family(os.Getpid()).programs() {
		var s syscall.Statfs_t
		if err := syscall.Statfs(fmt.Sprintf("/proc/%d/root", pid), &s); err != nil || seen[s.Fsid] {
			continue
		}
		seen[s.Fsid] = true
		const tmpfs = 0x01021994
		if s.Type == tmpfs {
			sum += int64(s.Blocks-s.Bfree) * s.Bsize
		}
	}
	return sum
}

// onDisk returns the size of a folder on disk, in bytes. A file with several
// names counts once.
func onDisk(dir string) (sum int64) {
	seen := map[uint64]bool{}
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // a measurement, so files that cannot be read are left out
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && !seen[s.Ino] {
			seen[s.Ino] = true
			sum += s.Blocks * 512
		}
		return nil
	})
	return sum
}
