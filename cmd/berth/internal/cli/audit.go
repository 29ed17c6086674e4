package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/audit"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/plugins/task"
)

// audits says what audit does with a page.
type audits struct {
	out, key        string // where the page goes, and the key that signs it
	verify, signers string // a signed page, and the keys that are trusted
}

func (a *app) auditCommand() *cobra.Command {
	var o audits
	cmd := &cobra.Command{
		Use:   "audit RUN",
		Short: "Compute the numbers of a run again from its raw records",
		Long: `Computes every number of a run again from its raw records, and names each file
and line that differs from what was recorded, and what cannot be checked. RUN is
a run folder, or an archive that berth export --to bundle made. The exit code is
1 if something differs.

-o writes the result as a page of JSON, which --sign KEY signs with an SSH key.
--verify PAGE checks such a signature with the public keys in --signers FILE,
audits the run again, and compares. See docs/exchange.md.`,
		Example: "  berth audit last\n  berth audit last -o audit.json --sign ~/.ssh/id_ed25519\n  berth audit runs/x --verify audit.json --signers author.pub",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.audit(cmd.Context(), args[0], &o) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.out, "output", "o", "", "write the page as JSON to this `FILE`")
	fs.StringVar(&o.key, "sign", "", "sign the page of -o with this private SSH `KEY`")
	fs.StringVar(&o.verify, "verify", "", "check this signed `PAGE` and its PAGE.sig")
	fs.StringVar(&o.signers, "signers", "", "`FILE` with the public SSH keys that you trust, for --verify")
	return cmd
}

func (o *audits) wrong() error {
	switch {
	case o.key != "" && o.out == "":
		return errors.New("--sign needs -o: name the file for the page. Example: berth audit last -o audit.json --sign ~/.ssh/id_ed25519")
	case o.verify != "" && o.signers == "":
		return errors.New("--verify needs --signers: name a file with the public keys that you trust, such as the author's id_ed25519.pub")
	case o.verify == "" && o.signers != "":
		return errors.New("--signers is for --verify PAGE")
	}
	return usage.File(o.out)
}

// audit prints what an audit found.
func (a *app) audit(ctx context.Context, name string, o *audits) error {
	if err := o.wrong(); err != nil {
		return err
	}
	opened, err := openRun(name)
	if err != nil {
		return err
	}
	defer opened.remove()
	dir := opened.dir
	tasks, err := a.tasksOf(ctx, opened)
	if err != nil {
		return err
	}
	now, err := audit.Run(dir, tasks)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err = writeAudit(text, o); err != nil {
		return err
	}
	said := ""
	if o.verify != "" {
		if said, err = verifyAudit(now, o); err != nil {
			return &exit{exitErrors, err}
		}
	}
	err = a.say(now, func() {
		a.printAudit(now, cmp.Or(o.key, o.verify) != "")
		if said != "" {
			a.Printf("%s\n", terminal.Clean(said))
		}
		if o.out != "" {
			a.Printf("page written to %s\n", terminal.Clean(o.out))
		}
	})
	if err != nil {
		return err
	}
	if now.Problems > 0 {
		return &exit{code: exitErrors}
	}
	return nil
}

// writeAudit writes the page, and its signature.
func writeAudit(text []byte, o *audits) error {
	if o.out == "" {
		return nil
	}
	var signature []byte
	if o.key != "" {
		var err error
		if signature, err = audit.Sign(text, o.key); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
	}
	err := renameio.WriteFile(o.out, text, 0o644, renameio.WithTempDir(filepath.Dir(o.out)))
	if err == nil && signature != nil {
		err = renameio.WriteFile(o.out+".sig", signature, 0o644, renameio.WithTempDir(filepath.Dir(o.out)))
	}
	return err
}

// verifyAudit checks a signed page, and that it is what an audit says now.
func verifyAudit(now *output.Audit, o *audits) (said string, err error) {
	page, err := os.ReadFile(o.verify)
	if err != nil {
		return "", err
	}
	signature, err := os.ReadFile(o.verify + ".sig")
	if err != nil {
		return "", fmt.Errorf("verify %s: its signature is missing: %w", o.verify, err)
	}
	by, err := audit.Verify(page, signature, o.signers)
	if err != nil {
		return "", fmt.Errorf("verify %s: %w", o.verify, err)
	}
	var was output.Audit
	if err = json.Unmarshal(page, &was); err != nil {
		return "", fmt.Errorf("verify %s: it is not a page of an audit: %w", o.verify, err)
	}
	switch {
	case was.Version != now.Version:
		return "", fmt.Errorf("verify %s: it has version %d, this berth reads %d: use the berth that made it", o.verify, was.Version, now.Version)
	case was.Run != now.Run:
		return "", fmt.Errorf("verify %s: it is about the run %s, and this is %s", o.verify, was.Run, now.Run)
	case was.Manifest != now.Manifest:
		return "", fmt.Errorf("verify %s: the manifest of the run has the checksum %s, and %s was signed: the plan was changed or extended", o.verify, now.Manifest, was.Manifest)
	}
	var again output.Audit
	text, err := json.Marshal(now)
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		return "", err
	}
	for _, p := range []*output.Audit{&was, &again} {
		// The author may have audited a folder, and the reader an archive.
		p.Checks = slices.DeleteFunc(p.Checks, func(c output.AuditCheck) bool { return c.Name == audit.DigestsCheck })
	}
	if !reflect.DeepEqual(was, again) {
		return "", fmt.Errorf("verify %s: the signature by %s is valid, but the run has changed since: an audit now gives another result (compare with berth audit --json)", o.verify, by)
	}
	return fmt.Sprintf("%s: valid signature by %s; the run matches", o.verify, by), nil
}

// printAudit prints the page. signed says that a signature is made or checked.
func (a *app) printAudit(p *output.Audit, signed bool) {
	a.Printf("run       %s\nmanifest  %s\n\n", terminal.Clean(p.Run), terminal.Clean(p.Manifest))
	t := terminal.Table{Head: []string{"check", "checked", "problems", "what"}, Right: []bool{1: true, 2: true, 3: false}, Below: true}
	for i := range p.Checks {
		c := &p.Checks[i]
		t.Row(c.Name, fmt.Sprint(c.Checked), fmt.Sprint(len(c.Problems)+c.More), c.What)
	}
	t.Write(a.Printer)
	for i := range p.Checks {
		c := &p.Checks[i]
		for _, x := range c.Problems {
			where := x.File
			if x.Line > 0 {
				where += fmt.Sprintf(":%d", x.Line)
			}
			a.Printf("\n%s: %s\n", terminal.Clean(where), terminal.Clean(x.Text))
		}
		if c.More > 0 {
			a.Printf("\n%d more problems of the check %s\n", c.More, c.Name)
		}
	}
	head := "\nNot checked:\n"
	for i := range p.Checks {
		for _, u := range p.Checks[i].Unchecked {
			a.Printf("%s  %s: %s\n", head, p.Checks[i].Name, terminal.Clean(u))
			head = ""
		}
	}
	a.Printf("\noutcomes:  %s\nintegrity: %s\nmodes:     %s\n", counts(p.Outcomes), counts(p.Integrity), counts(p.Modes))
	for _, what := range p.Interventions {
		a.Hang("changed:   ", what)
	}
	if p.Problems == 0 {
		a.Printf("\nThe record is consistent.\n")
		if !signed {
			a.Printf("It is not signed: anyone who can write to the folder can make it so. To sign: berth audit RUN -o PAGE --sign KEY\n")
		}
		return
	}
	a.Printf("\n%s: the run is not what its records say.\n", terminal.Count(p.Problems, "problem", "problems"))
}

// counts prints counts by name, the names in order.
func counts(of map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%d %s", of[name], terminal.Clean(name)))
	}
	return strings.Join(all, ", ")
}

// tasksOf computes the digests of the tasks of an archive; nil for the folder of a
// run, which has none. Datasets that this berth cannot read are left out.
func (a *app) tasksOf(ctx context.Context, o *opened) (audit.Tasks, error) {
	if o.datasets == nil {
		return nil, nil
	}
	all := audit.Tasks{}
	for label, how := range o.read {
		at := slices.IndexFunc(a.formats, func(f task.Format) bool { return f.Name() == how.Format })
		folder, there := o.datasets[label]
		if at < 0 || !there {
			continue
		}
		listing, err := task.List(ctx, a.formats[at], folder, task.ListOptions{
			Options: task.Options{Lenient: true, AllowEnv: how.AllowEnv, LookupEnv: a.env, Config: how.Config, All: true},
		})
		if err != nil {
			return nil, fmt.Errorf("tasks of the dataset %q: %w", label, err)
		}
		all[label] = map[string]string{}
		for i := range listing.Items {
			it := &listing.Items[i]
			switch outside := slices.ContainsFunc(it.Problems, func(p task.Problem) bool { return p.Outside }); {
			case it.Task != nil:
				all[label][it.Name()] = it.Task.Digest
			case outside:
				all[label][it.Name()] = ""
			}
		}
	}
	return all, nil
}
