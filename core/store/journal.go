package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// EntryKind is the kind of a journal entry.
type EntryKind string

// The kinds of entries.
const (
	WriterBegan  EntryKind = "writer_began"
	WriterEnded  EntryKind = "writer_ended"
	AttemptBegan EntryKind = "attempt_began"
	AttemptEnded EntryKind = "attempt_ended"
	Noted        EntryKind = "noted"    // something that a reader of the run should know
	Extended     EntryKind = "extended" // the manifest has further trials
)

// Entry is one line of a journal. Which fields are set depends on Kind.
type Entry struct {
	Kind    EntryKind     `json:"kind"`
	Seq     int           `json:"seq"` // 1…, without a gap within a writer
	Time    time.Time     `json:"time"`
	Process *node.Process `json:"process,omitempty"` // of a writer that began
	Berth   string        `json:"berth,omitempty"`   // its version
	Trial   string        `json:"trial,omitempty"`   // id
	Attempt int           `json:"attempt,omitempty"`
	Brief   *Brief        `json:"result,omitempty"` // of an attempt that ended
	Note    string        `json:"note,omitempty"`
	// Sums are the checksums of files, "sha256:" and hex, by name: when an attempt
	// ended, of its ChecksumsFile and result; when a writer began, ended or extended the
	// run, of the manifest and, at the end, of PluginsFile and SummaryFile.
	Sums map[string]string `json:"sums,omitempty"`
	// Accepted is a drift that the user accepted by a flag, with Noted.
	Accepted string `json:"accepted,omitempty"`
	// Intervention is what a person did to the run while it ran, with Noted.
	Intervention *Intervention `json:"intervention,omitempty"`
}

// Intervention is what a person did to a run while it ran.
type Intervention struct {
	Action string             `json:"action"` // pause, drain, resume, set, cancel or end_turn
	User   string             `json:"user"`   // the login name, or the number if there is none
	UID    int                `json:"uid"`
	Why    string             `json:"why,omitempty"`
	Trial  string             `json:"trial,omitempty"` // id; of cancel and end_turn
	Cell   string             `json:"cell,omitempty"`  // slug, if all of its trials were cancelled
	Set    map[string]float64 `json:"set,omitempty"`   // the new limits of the run by name; below 0: none
}

// Brief is the part of an attempt's result that tables need.
type Brief struct {
	Outcome   record.Outcome   `json:"outcome"`
	AgentEnd  record.AgentEnd  `json:"agent_end,omitempty"`
	Integrity record.Integrity `json:"integrity"`
	Mode      string           `json:"mode,omitempty"` // verification mode; empty if nothing was verified
	Score     *float64         `json:"score,omitempty"`
	// Rewards are all scores of the verifiers, by name.
	Rewards map[string]float64 `json:"rewards,omitempty"`
	// Scores are the scores of an attempt without a deciding score.
	Scores map[string]float64 `json:"scores,omitempty"`
	Labels map[string]string  `json:"labels,omitempty"`
	Start  time.Time          `json:"start"`
	End    time.Time          `json:"end"`
	// Queued is how long the attempt waited for a worker, by the clock of the
	// process that waited; 0: it waited for none.
	Queued    time.Duration `json:"queued_ns,omitempty"`
	AgentTime time.Duration `json:"agent_time_ns,omitempty"`
	Steps     int64         `json:"steps,omitempty"` // of the agent
	Spend
	Origin    int               `json:"regraded,omitempty"` // the attempt whose work was verified again; 0: its own
	Oracle    bool              `json:"oracle,omitempty"`
	Modified  bool              `json:"modified,omitempty"`
	Error     string            `json:"error,omitempty"` // boundary and message
	Retryable bool              `json:"retryable,omitempty"`
	Digests   map[string]string `json:"digests,omitempty"`
}

// Measured reports whether the attempt counts as measured.
func (b *Brief) Measured() bool { return b.Outcome.MeasuredAfter(b.AgentEnd) }

// BriefOf returns the part of r that tables need. Digests are those that resume
// compares: of plugins by kind and name, of bundles by name, and of the image.
func BriefOf(r *record.Result) *Brief {
	b := &Brief{
		Outcome: r.Outcome, AgentEnd: r.AgentEnd, Integrity: r.Integrity, Score: r.Score, Start: r.Start, End: r.End,
		Mode: r.Mode, Rewards: r.Scores, Labels: r.Labels, AgentTime: r.AgentTime, Steps: r.Steps, Oracle: r.Oracle, Modified: len(r.Modified) > 0, Digests: map[string]string{},
	}
	if r.Regraded != nil {
		b.Origin = r.Regraded.Attempt
	}
	if r.Outcome == record.Scored && r.Score == nil {
		b.Scores = r.Scores
	}
	if r.Error != nil {
		b.Error, b.Retryable = cut(fmt.Sprintf("%s: %s", r.Error.Boundary, r.Error.Message), 400), r.Error.Retry
	}
	for _, u := range r.Spent() {
		one := Spend{CostUSD: u.CostUSD, Unpriced: u.CostUSD == nil, Tokens: u.InputTokens + u.OutputTokens, Requests: u.Requests, Estimated: u.Estimated}
		if u.FallbackFor != "" {
			one.Fallback = u.Requests
		}
		b.Add(one)
	}
	for _, u := range r.Bundles {
		b.Digests["bundle "+u.Name] = u.Digest
	}
	in := ""
	for _, p := range r.Plugins {
		b.Digests[p.Kind+" "+p.Name] = p.Digest
		if p.Kind == "environment" {
			in = " in " + p.Name
		}
	}
	if r.Image != nil && r.Image.Digest != "" {
		b.Digests["image of "+r.Task+in] = r.Image.Digest
	}
	return b
}

// cut shortens s to n bytes and marks that. It keeps the end, which has the cause of
// an error.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n/3], "") + " … " + strings.ToValidUTF8(s[len(s)-2*n/3:], "")
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// JournalLine is one line of a journal as a type for its schema: sealed with a
// decoded entry.
type JournalLine struct {
	Sum   string `json:"sum"` // CRC-32C of the bytes of Entry, 8 hex digits
	Entry Entry  `json:"entry"`
}

// sealed is a line of a journal: Sum is the CRC-32C, in 8 hex digits, of the
// bytes of Entry.
type sealed struct {
	Sum   string          `json:"sum"`
	Entry json.RawMessage `json:"entry"`
}

// Seal returns v as a line with a checksum, with its line end.
func Seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(sealed{Sum: fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli)), Entry: b})
	return append(out, '\n'), err
}

// journal is the journal of this process.
type journal struct {
	mu   sync.Mutex
	f    *os.File
	seq  int
	torn bool // the last write stopped in the middle of a line
}

func createJournal(file string) (*journal, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &journal{f: f}, nil
}

// append writes e and, with durable, returns only when it is on the disk.
func (j *journal) append(e Entry, durable bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq = j.seq + 1
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	b, err := Seal(&e)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if j.torn { // begin a new line, so that only the incomplete one is lost
		b = append([]byte{'\n'}, b...)
	}
	n, err := j.f.Write(b)
	j.torn = err != nil && n > 0 || j.torn && n == 0
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.seq++
	if durable {
		if err = j.f.Sync(); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.f.Sync(), j.f.Close())
}

// Bounds of reading journals.
const (
	maxEntry    = 1 << 20 // bytes of one line
	maxJournal  = 4 << 30 // bytes of one journal
	maxJournals = 100_000
)

// Journal is the journal of one writer.
type Journal struct {
	Writer  string // name of the file without its ending
	Entries []Entry
	// Torn counts incomplete lines left by a crash or a full disk. Damaged
	// counts lines that fail their checksum, and gaps in the numbers.
	Torn, Damaged int
	// Tail means that the last line is one of Torn, and that a crash of its writer
	// explains it: no line end follows, and the writer did not end properly.
	Tail bool
	// Bad are the numbers, from 1, of the lines that Torn and Damaged count; of a
	// gap it is the line after it.
	Bad []int
}

// readJournal reads every readable line of a journal; only a failed read from
// the disk is an error.
func readJournal(r io.Reader) (j Journal, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		b, readErr := untrusted.Line(br, maxEntry)
		long := errors.Is(readErr, untrusted.ErrLong)
		if errors.Is(readErr, io.EOF) && len(b) == 0 && !long {
			return j, nil
		}
		if readErr != nil && !errors.Is(readErr, io.EOF) && !long {
			return j, readErr
		}
		whole := readErr == nil
		var e Entry
		ok := Unseal(b, &e) && e.Kind != ""
		switch {
		case ok && whole:
			if len(j.Entries) > 0 && e.Seq != j.Entries[len(j.Entries)-1].Seq+1 {
				j.Damaged++
				j.Bad = append(j.Bad, n)
			}
			j.Entries = append(j.Entries, e)
		case len(bytes.TrimSpace(b)) == 0:
		case ok, !json.Valid(b): // a line without its end, or a part of one
			j.Torn++
			j.Tail = !whole && !long && (len(j.Entries) == 0 || j.Entries[len(j.Entries)-1].Kind != WriterEnded)
			j.Bad = append(j.Bad, n)
		default:
			j.Damaged++
			j.Bad = append(j.Bad, n)
		}
		if errors.Is(readErr, io.EOF) {
			return j, nil
		}
	}
}

// Unseal reads a line as Seal wrote it into the value that into points to, and
// reports whether the line is whole and unchanged. It takes the value out of the
// line without decoding the line, which would take longer than all of the rest.
func Unseal(b []byte, into any) bool {
	b, begun := bytes.CutPrefix(bytes.TrimSpace(b), []byte(`{"sum":"`))
	sum, entry, split := bytes.Cut(b, []byte(`","entry":`))
	entry, ended := bytes.CutSuffix(entry, []byte("}"))
	if !begun || !split || !ended || string(sum) != fmt.Sprintf("%08x", crc32.Checksum(entry, castagnoli)) {
		return false
	}
	return json.Unmarshal(entry, into) == nil
}

// ReadJournals reads all journals of the run in dir, oldest first.
func ReadJournals(dir string) (all []Journal, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: journals: %w", dir, err)
		}
	}()
	entries, err := untrusted.Dir(dir, JournalDir, maxJournals)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the folder is missing, so the run cannot be read: %w: restore it from a copy; the results of attempts are still in %s", err, TrialsDir)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		writer, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if !ok || !e.Type().IsRegular() {
			continue
		}
		f, err := untrusted.Open(dir, path.Join(JournalDir, e.Name()), maxJournal)
		if err != nil {
			return nil, err
		}
		j, err := readJournal(f)
		err = errors.Join(err, f.Close())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		j.Writer = writer
		all = append(all, j)
	}
	return all, nil // file names begin with the time
}

// Spend is the use of models, in all roles. The zero value means no use.
type Spend struct {
	CostUSD  *float64 `json:"cost_usd,omitempty"` // null: not known, or no model was used
	Unpriced bool     `json:"unpriced,omitempty"` // a model was used whose price is not known
	Tokens   int64    `json:"tokens,omitempty"`   // input and output
	Requests int64    `json:"requests,omitempty"` // to models
	// Estimated is how many requests have a usage that the provider did not
	// report.
	Estimated int64 `json:"estimated_requests,omitempty"`
	// Fallback is how many requests a fallback served in place of the model.
	Fallback int64 `json:"fallback_requests,omitempty"`
}

// Add adds more. An unknown cost adds nothing to a known one.
func (s *Spend) Add(more Spend) {
	s.Tokens += more.Tokens
	s.Requests += more.Requests
	s.Estimated += more.Estimated
	s.Fallback += more.Fallback
	s.Unpriced = s.Unpriced || more.Unpriced
	if more.CostUSD == nil {
		return
	}
	sum := *more.CostUSD
	if s.CostUSD != nil {
		sum += *s.CostUSD
	}
	s.CostUSD = &sum
}

// exchange is the part of a line of record.ExchangesFile that is about usage.
type exchange struct {
	Request string `json:"request"`
	Retry   bool   `json:"retry"`
	Usage   *struct {
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
	} `json:"usage"`
	CostUSD   *float64 `json:"cost_usd"`
	Estimated bool     `json:"estimated"`

	FallbackFor string `json:"fallback_for"`
}

// Bounds of reading a record of exchanges.
const (
	maxExchange  = 16 << 20 // bytes of one line
	maxExchanges = 4 << 30  // bytes of all of it
)

// Exchanged returns what the attempt in dir has used according to its record of
// exchanges. It leaves out a line that was cut off by a kill.
func Exchanged(dir string) (Spend, error) {
	var sum Spend
	counted := map[string]bool{} // requests that came to something
	cut, err := untrusted.Lines(dir, record.ExchangesFile, maxExchange, maxExchanges, func(line []byte) {
		var x exchange
		if json.Unmarshal(line, &x) != nil || x.Usage == nil {
			return // cut off by a kill, or without an effect
		}
		one := Spend{CostUSD: x.CostUSD, Unpriced: x.CostUSD == nil, Tokens: x.Usage.Input + x.Usage.Output}
		if !x.Retry || !counted[x.Request] {
			one.Requests = 1
		}
		counted[x.Request] = true
		if x.Estimated {
			one.Estimated = 1
		}
		if x.FallbackFor != "" {
			one.Fallback = one.Requests
		}
		sum.Add(one)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return sum, nil
	}
	if cut && err == nil {
		err = fmt.Errorf("%s: a line of it, or all of it, is too long to be read", filepath.Join(dir, record.ExchangesFile))
	}
	return sum, err
}
