package run

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/redact"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial/recorder"
)

// maxOutput is how much of the output of plugins one process keeps of a run, in
// bytes.
const maxOutput = 64 << 20

// output keeps what plugins write to stderr: in the run's folder, and in that of
// the attempt in whose calls it was written if that is known.
type output struct {
	mu       sync.Mutex
	file     *os.File
	left     int
	attempts map[string]Attempt // that run now, by the name that plugins get
	err      error              // the first failure to write
}

// keepOutput keeps the output of plugins from now on, without the secrets of the
// run. The caller closes the result.
func (s *Spec) keepOutput(h *here) (*output, error) {
	// A run that is resumed may have been made by another user, who can put a link there.
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	name := filepath.Join(s.Store.Dir, store.PluginsFile)
	if s.Worker != nil {
		name, flags = s.Worker.Output, os.O_CREATE|os.O_WRONLY|os.O_EXCL // of this process alone
	}
	file, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keep the output of plugins: %w", err)
	}
	o := &output{file: file, left: maxOutput, attempts: map[string]Attempt{}}
	s.Host.Keep(redact.New(h.secrets()...), o.keep)
	return o, nil
}

// secrets returns every secret value of the run. A line of a value with several
// lines is one, too, because plugins write line by line.
func (h *here) secrets() []string {
	var all []string
	for _, byDataset := range h.cells {
		for _, c := range byDataset {
			all = append(all, c.Secrets...)
		}
	}
	for i := range h.Plan.Tasks {
		if t := h.Plan.Tasks[i].Task; t != nil {
			all = append(all, recorder.HostValues(t, h.LookupEnv)...)
		}
	}
	for _, v := range all {
		if strings.Contains(v, "\n") {
			all = append(all, strings.Split(v, "\n")...)
		}
	}
	return all
}

func (o *output) keep(l plugin.Line) {
	raw, err := json.Marshal(l)
	if err != nil {
		return // it was JSON, or text
	}
	raw = append(raw, '\n')
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil || o.left <= 0 {
		return
	}
	if o.left -= len(raw); o.left <= 0 {
		raw = fmt.Appendf(nil, `{"text":"the plugins wrote %d MiB, and no more is kept"}`+"\n", maxOutput>>20)
	}
	if _, err = o.file.Write(raw); err != nil && o.err == nil {
		o.err = fmt.Errorf("keep the output of plugins: %w", err)
	}
	if a := o.attempts[l.Attempt]; a != nil {
		_ = a.Append(store.PluginsFile, json.RawMessage(raw[:len(raw)-1])) // fails after the attempt has ended
	}
}

// begin makes an attempt known; end ends that.
func (o *output) begin(name string, a Attempt) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts[name] = a
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.attempts, name)
	}
}

// close ends keeping, and returns the first failure.
func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	file := o.file
	o.file = nil
	if err := file.Close(); o.err == nil && err != nil {
		o.err = fmt.Errorf("keep the output of plugins: %w", err)
	}
	return o.err
}
