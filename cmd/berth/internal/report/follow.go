package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/core/store"
)

// ErrNobodyRuns means that a trial has not ended, and that no process runs it.
var ErrNobodyRuns = errors.New("the trial has not ended, and the process of the run is gone")

// Follower prints what happens in a trial until the trial ends.
type Follower struct {
	P *terminal.Printer
	// Dir is the folder of the run, and Trial the id of the trial.
	Dir, Trial string
	All        bool // prints texts in full

	m       *store.Manifest
	x       *store.Index
	t       *store.TrialState
	next    time.Time // when the journals are read again
	waits   bool      // the user was told that the trial has not begun
	faraway bool      // the user was told that the process is on another machine
}

// How often a Follower looks for something new, and how often it reads all
// journals of the run, which may be long.
const (
	lookEvery = 200 * time.Millisecond
	readEvery = time.Second
)

// Follow returns nil when the trial has ended, ErrNobodyRuns if no process runs
// it, and the error of ctx.
func (f *Follower) Follow(ctx context.Context) error {
	if err := f.read(); err != nil {
		return err
	}
	last := 0
	for i := range f.t.Attempts { // what ended before is in the list above
		if i < len(f.t.Attempts)-1 || !f.x.UnderWay(f.t) {
			last = f.t.Attempts[i].Number
		}
	}
	for {
		i := slices.IndexFunc(f.t.Attempts, func(a store.AttemptState) bool { return a.Number > last })
		if i < 0 {
			over, err := f.Over()
			if over || err != nil {
				return errors.Join(err, f.end())
			}
			f.wait()
			if err = f.pause(ctx); err != nil {
				return err
			}
			continue
		}
		last = f.t.Attempts[i].Number
		if err := f.attempt(ctx, last); err != nil {
			return err
		}
	}
}

// read reads the state of the run.
func (f *Follower) read() (err error) {
	began := time.Now()
	if f.m, f.x, err = store.Read(f.Dir); err != nil {
		return err
	}
	if f.t = f.x.Trial(f.Trial); f.t == nil {
		return fmt.Errorf("the run has no trial %s any more", Short(f.Trial, 12))
	}
	f.next = time.Now().Add(max(readEvery, 10*time.Since(began)))
	return nil
}

// pause waits a moment, and reads the state of the run if it is time to.
func (f *Follower) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lookEvery):
	}
	if time.Now().Before(f.next) {
		return nil
	}
	return f.read()
}

// Over reports whether the trial has ended. ErrNobodyRuns says that it never will
// unless the run is resumed.
func (f *Follower) Over() (bool, error) {
	if f.t == nil {
		if err := f.read(); err != nil {
			return false, err
		}
	}
	retry := experiment.Retry{}
	if r := f.m.Header.Retry; r != nil {
		retry.Max, retry.On = r.Max, r.On
	}
	if _, open := run.Open(f.t, retry, nil); !open {
		return true, nil
	}
	w := f.x.Writing()
	if w == nil {
		return false, ErrNobodyRuns
	}
	noteFaraway(f.P, w, &f.faraway)
	return false, nil
}

// wait says that there is nothing to follow yet.
func (f *Follower) wait() {
	if f.waits {
		return
	}
	f.waits = true
	if n := len(f.t.Attempts); n > 0 {
		f.P.Notef("attempt %d has ended; waiting for the next attempt\n", f.t.Attempts[n-1].Number)
		return
	}
	f.P.Notef("waiting for the trial to begin\n")
}

// end says what the outcome of the trial is.
func (f *Follower) end() error {
	if f.P.JSON {
		t := Trial(f.Dir, f.m, f.x, f.t)
		return f.P.Line(output.ShowFollow{Trial: &t})
	}
	f.P.Printf("\noutcome %s\n", outcomeText(f.P, f.t, false))
	return nil
}

// attempt prints what happens in an attempt until it has a result, or until its
// process is gone.
func (f *Follower) attempt(ctx context.Context, number int) error {
	dir := Folder(f.Dir, f.t, number)
	a := &followed{Follower: f, dir: dir, number: number}
	f.waits = false
	if !f.P.JSON {
		f.P.Printf("%s\n", terminal.Paint(f.P.Color, terminal.Bold, fmt.Sprintf("attempt %d", number)))
	}
	for {
		_, err := os.Lstat(filepath.Join(dir, record.ResultFile)) // before the files: they are closed by then
		ended := err == nil || StateOf(f.x, f.t, number) != output.UnderWay
		if err = a.more(); err != nil {
			return err
		}
		if ended {
			break
		}
		if err = f.pause(ctx); err != nil {
			return err
		}
	}
	if err := f.read(); err != nil {
		return err
	}
	state := StateOf(f.x, f.t, number)
	full, err := Attempt(dir, state)
	switch {
	case err != nil:
		return err
	case f.P.JSON && full.Result != nil:
		return f.P.Line(output.ShowFollow{Attempt: number, Result: full.Result})
	case full.Result == nil:
		f.P.Notef("attempt %d has no result: the process of the run was killed\n", number)
	default:
		f.P.Printf("\n")
		resultText(f.P, full.Result, f.All)
		f.P.Printf("files in %s\n", Display(dir))
	}
	return nil
}

// followed is an attempt that is followed.
type followed struct {
	*Follower

	dir    string
	number int
	at     [3]int64 // how far each of the files was read
}

// followedFiles are the files of an attempt in which something happens.
var followedFiles = [3]string{record.EventsFile, record.StepsFile, record.LogFile}

// entry is something that happened in an attempt; one of its fields is set.
type entry struct {
	at    time.Time
	event *record.Event
	step  *record.Step
	log   json.RawMessage
	line  LogLine
}

// more prints what was added since the last call, in the order of its times.
func (a *followed) more() error {
	var all []entry
	for i, name := range followedFiles {
		for more := true; more; {
			lines, next, err := ReadPart(a.dir, name, a.at[i], 1000)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			more = next > a.at[i]
			a.at[i] = next
			for _, l := range lines {
				if e, ok := decode(i, l.Text); ok {
					all = append(all, e)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(x, y entry) int { return x.at.Compare(y.at) })
	for i := range all {
		if err := a.print(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

// decode reads a line of one of the files.
func decode(file int, line []byte) (e entry, ok bool) {
	switch file {
	case 0:
		e.event = &record.Event{}
		ok = json.Unmarshal(line, e.event) == nil
		e.at = e.event.Time
	case 1:
		e.step = &record.Step{}
		ok = json.Unmarshal(line, e.step) == nil
		e.at = e.step.Time
	default:
		ok = json.Unmarshal(line, &e.line) == nil
		e.log, e.at = slices.Clone(line), e.line.Time
	}
	return e, ok
}

func (a *followed) print(e *entry) error {
	switch {
	case a.P.JSON:
		return a.P.Line(output.ShowFollow{Attempt: a.number, Event: e.event, Step: e.step, Log: e.log})
	case e.event != nil:
		a.eventText(e.event)
	case e.step != nil:
		stepText(a.P, &e.step.Step, a.All)
	default:
		e.line.text(a.P)
	}
	return nil
}

// eventText prints the beginning of a phase, why one failed, and findings.
func (a *followed) eventText(e *record.Event) {
	at := e.Time.Local().Format(clock)
	phase := phaseName(&record.Phase{Name: e.Phase, Stage: e.Stage, Turn: e.Turn})
	switch {
	case e.Type == record.EventPhaseStart:
		a.P.Printf("%s %s\n", at, terminal.Paint(a.P.Color, terminal.Bold, phase))
	case e.Type == record.EventPhaseEnd && e.Error != "":
		a.P.Hang(fmt.Sprintf("%s %s failed: ", at, phase), e.Error)
	case e.Type == record.EventFinding && e.Finding != nil:
		a.P.Hang(fmt.Sprintf("%s %s (%s, by %s): ", at, terminal.Clean(e.Finding.Code), e.Finding.Severity, terminal.Clean(e.Finding.By)), e.Finding.Text)
	}
}
