package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLine is the longest line of a log that is passed on, in bytes.
const maxLine = 4 << 10

// Message is one of the JSON objects in which engines report on work.
type Message struct {
	Stream   string          `json:"stream"`
	Status   string          `json:"status"`
	ID       string          `json:"id"`
	Error    string          `json:"error"`
	Progress json.RawMessage `json:"progressDetail"`
	Aux      json.RawMessage `json:"aux"`
}

// Messages reads them from r until it ends, passes lines to log and auxiliary
// data to aux, which may be nil, and returns the error that the engine names.
func Messages(r io.Reader, log func(string), aux func(json.RawMessage)) error {
	d := json.NewDecoder(r)
	line := ""
	say := func(text string) {
		for {
			head, rest, ok := strings.Cut(text, "\n")
			line += head
			if !ok && len(line) < maxLine {
				return
			}
			if line = strings.TrimRight(line, "\r "); line != "" {
				log(line[:min(len(line), maxLine)])
			}
			line, text = "", rest
			if !ok {
				return
			}
		}
	}
	for {
		var m Message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			say("\n")
			return nil
		} else if err != nil {
			return fmt.Errorf("read what the engine says: %w", err)
		}
		switch {
		case m.Error != "":
			say("\n" + m.Error + "\n")
			return errors.New(m.Error)
		case m.Stream != "":
			say(m.Stream)
		case m.Status != "" && (len(m.Progress) == 0 || string(m.Progress) == "{}"):
			say(strings.TrimSpace(m.ID+" "+m.Status) + "\n")
		case len(m.Aux) > 0 && aux != nil:
			aux(m.Aux)
		}
	}
}

// PullError classifies the error of a failed pull by its remedy.
func PullError(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case says("toomanyrequests", "too many requests", "rate limit"): // also where it names what was not found meanwhile
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case says("manifest unknown", "not found", "no such image", "pull access denied", "repository does not exist", "requested access to the resource is denied", "name unknown"):
		return fmt.Errorf("%w: %w", ErrNoImage, err)
	default:
		return err
	}
}

// NvidiaGPUs are the models of this machine's cards, in order.
func NvidiaGPUs() []string {
	files, err := filepath.Glob("/proc/driver/nvidia/gpus/*/information")
	if err != nil {
		return nil
	}
	var all []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if model, ok := strings.CutPrefix(line, "Model:"); ok {
				all = append(all, strings.TrimSpace(model))
			}
		}
	}
	return all
}
