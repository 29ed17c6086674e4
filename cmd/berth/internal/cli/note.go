package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
)

func (a *app) noteCommand() *cobra.Command {
	var label, text string
	var remove bool
	cmd := &cobra.Command{
		Use:   "note RUN [TRIAL [ATTEMPT]]",
		Short: "Label an attempt, or list the labels of a run",
		Long: `Gives an attempt a label such as "reward hacking" or "bad task", with a text, or
lists the labels of a run. RUN, TRIAL and ATTEMPT are those of berth show. If
the attempt has the label already, the new text replaces the old one.

Notes are stored in notes.jsonl in the folder of the run, with the name of the
user and the time. Scores and berth audit do not depend on them. --select can
use them:

  berth show last --select '"bad task" in notes'`,
		Example: "  berth note last 3f9a2c --label \"reward hacking\" --why \"It prints the answer.\"\n  berth note last 3f9a2c --label \"reward hacking\" --remove\n  berth note last",
		Args:    cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("label") {
				return a.note(args, notes.Note{Label: strings.TrimSpace(label), Text: strings.TrimSpace(text), Removed: remove})
			}
			if text != "" || remove {
				return errors.New("--why and --remove need --label. Example: berth note last 3f9a2c --label \"bad task\" --why \"The test needs the network.\"")
			}
			return a.showNotes(args)
		},
	}
	cmd.Flags().StringVar(&label, "label", "", "`LABEL` that the attempt gets")
	cmd.Flags().StringVar(&text, "why", "", "`TEXT` that explains the label")
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the label")
	return cmd
}

// note writes a note about an attempt.
func (a *app) note(args []string, n notes.Note) error {
	if len(args) < 2 {
		return errors.New("--label needs a trial. Example: berth note last 3f9a2c --label \"bad task\"")
	}
	c, err := choose(args)
	if err != nil {
		return err
	}
	n.Trial = c.trial.ID
	if n.Attempt, err = c.number(args); err != nil {
		return err
	}
	if n.Attempt == 0 {
		return fmt.Errorf("trial %s has no attempt yet, and notes are about attempts", report.Short(n.Trial, 12))
	}
	readers, err := notes.Read(c.dir)
	if err != nil {
		return err
	}
	if labels := readers.Labels(n.Trial, n.Attempt); n.Removed && !slices.Contains(labels, n.Label) {
		return fmt.Errorf("attempt %d of trial %s has no label %q; its labels: %q", n.Attempt, report.Short(n.Trial, 12), n.Label, labels)
	}
	n.Time, n.Author = time.Now().UTC(), control.NameOf(os.Getuid())
	if err = notes.Add(c.dir, n); err != nil {
		return err
	}
	return a.showNotes(args)
}

// showNotes prints the notes of a run, a trial or an attempt.
func (a *app) showNotes(args []string) error {
	dir, err := report.FindRun(args[0])
	if err != nil {
		return err
	}
	m, x, err := store.Read(dir)
	if err != nil {
		return err
	}
	readers, err := notes.Read(dir)
	if err != nil {
		return err
	}
	res := output.Notes{Run: dir, Notes: []notes.Note{}, Damaged: readers.Damaged}
	keep := func(*notes.Note) bool { return true }
	if len(args) > 1 {
		c := chosen{dir: dir, manifest: m, index: x}
		if c.trial, err = report.FindTrial(x, args[1]); err != nil {
			return err
		}
		number, failed := c.number(args)
		if failed != nil {
			return failed
		}
		keep = func(n *notes.Note) bool { return n.Trial == c.trial.ID && (len(args) == 2 || n.Attempt == number) }
	}
	for _, n := range readers.All() {
		if keep(&n) {
			res.Notes = append(res.Notes, n)
		}
	}
	return a.say(res, func() { a.printNotes(x, &res) })
}

func (a *app) printNotes(x *store.Index, res *output.Notes) {
	if len(res.Notes) == 0 {
		a.Printf("no notes\n")
	} else {
		dirs := map[string]string{}
		for _, t := range x.Trials {
			dirs[t.ID] = t.Dir
		}
		t := terminal.Table{Head: []string{"trial", "attempt", "label", "by", "when", "text"}, Right: []bool{1: true}}
		for _, n := range res.Notes {
			t.Row(terminal.Clean(dirs[n.Trial]), fmt.Sprint(n.Attempt), terminal.Clean(n.Label), terminal.Clean(n.Author), n.Time.Local().Format("2006-01-02 15:04"), terminal.Clean(strings.ReplaceAll(n.Text, "\n", " ")))
		}
		t.Write(a.Printer)
	}
	if res.Damaged > 0 {
		a.Notef("note: %d lines of %s are not notes and were left out\n", res.Damaged, notes.File)
	}
}
