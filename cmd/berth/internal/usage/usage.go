// Package usage refuses wrong command lines and says what to write instead,
// also for cobra's own commands.
//
// It must not know what a command does.
package usage

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-eval/berth/plugins/suggest"
)

// Error is a wrong use of a command; it says what to do.
type Error struct{ error }

func (e Error) Unwrap() error { return e.error }

func wrong(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// File refuses a name for a file to write that has another meaning, or where something
// is that is not a file: a new file would take the place of a device, a pipe or a link
// such as /dev/stdout.
func File(name string) error {
	if name == "-" {
		return wrong("%s is not supported here: give a file name", name)
	}
	if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return wrong("%s is not a regular file (%s), and would be replaced by one: name a new file", name, info.Mode())
	}
	return nil
}

// Count is a flag with a whole number of at least 1; 0: it was not given.
type Count int

// Set implements pflag.Value.
func (c *Count) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if *c = Count(n); err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return err
}

// String implements pflag.Value.
func (c *Count) String() string { return strconv.Itoa(int(*c)) }

// Type implements pflag.Value.
func (*Count) Type() string { return "count" }

// Width is how many columns help may have.
const Width = 80

// Strict makes a command and all below it refuse what they do not know, and
// keeps the lists of flags in their help within Width.
func Strict(root *cobra.Command) {
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages ", fmt.Sprintf("FlagUsagesWrapped %d ", Width)))
	hintAtHelp(root)
	strictHelp(root)
}

// AsksForJSON looks for --json in arguments that could not be read.
func AsksForJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// flagError says what is wrong with a flag and what it takes.
func flagError(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		takes := map[string]string{"int": "a whole number", "bool": "true or false", "float64": "a number", "int64": "a whole number", "uint64": "a whole number, 0 or more", "duration": `a duration such as "90s"`, "count": "a whole number of at least 1"}
		if want := takes[bad.GetFlag().Value.Type()]; want != "" {
			err = fmt.Errorf("--%s must be %s, got %q", bad.GetFlag().Name, want, bad.GetValue())
		}
	}
	if no, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if best := suggest.Word(no.GetSpecifiedName(), known); best != "" {
			return wrong("%w. Did you mean --%s?", err, best)
		}
	}
	return wrong("%w. See %s --help", err, cmd.CommandPath())
}

// strictHelp makes cobra's own command refuse what it does not know, as ours do.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Short, c.Long = "Print the help of a command", "Prints the help of a command, like --help."
		c.Example = "  berth help run\n  berth help plugin test"
		c.Args = func(_ *cobra.Command, args []string) error {
			if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
				return wrong("unknown command %q. %s", strings.Join(args, " "), Next(found, rest))
			}
			return nil
		}
	}
}

// hintAtHelp makes what a command says about the number of its arguments, or
// about a subcommand that it does not have, end with what to do.
func hintAtHelp(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			if cmd.HasSubCommands() {
				return wrong("%w. %s", err, Next(cmd, args))
			}
			return wrong("%s", takes(cmd, args, check))
		}
	}
	for _, c := range cmd.Commands() {
		hintAtHelp(c)
	}
}

// takes says how many arguments a command expects instead of args, with an
// example. check is what refused args.
func takes(cmd *cobra.Command, args []string, check cobra.PositionalArgs) string {
	_, wants, _ := strings.Cut(cmd.Use, " ")
	if wants == "" && len(args) > 0 {
		return fmt.Sprintf("%s: unexpected argument %q. See %[1]s --help", cmd.CommandPath(), args[0])
	}
	got := "none"
	if len(args) > 0 {
		got = strconv.Itoa(len(args))
	}
	count, optional := counts(cmd, check)
	if optional {
		wants = strings.TrimSuffix(strings.TrimPrefix(wants, "["), "]")
	}
	return fmt.Sprintf("%s: expected %s (%s), got %s. Example: %s", cmd.CommandPath(), count, wants, got, example(cmd))
}

// counts says how many arguments check accepts, and whether none is enough.
func counts(cmd *cobra.Command, check cobra.PositionalArgs) (text string, optional bool) {
	const many = 10 // a command that accepts so many accepts any number
	least, most := -1, 0
	for n := range many + 1 {
		if check(cmd, make([]string, n)) != nil {
			continue
		}
		if most = n; least < 0 {
			least = n
		}
	}
	switch {
	case most == many:
		text, most = fmt.Sprintf("at least %d argument", least), least
	case least == most:
		text = fmt.Sprintf("%d argument", most)
	case least == 0:
		text = fmt.Sprintf("at most %d argument", most)
	default:
		text = fmt.Sprintf("%d to %d argument", least, most)
	}
	if most != 1 {
		text += "s"
	}
	return text, least == 0
}

// example is the first example of a command.
func example(cmd *cobra.Command) string {
	first, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	first, _, _ = strings.Cut(first, "   ") // what it is for stands beside it
	return strings.TrimSpace(first)
}

// Next says what to try instead of arguments that cmd does not take: the
// command with the nearest name, else its help.
func Next(cmd *cobra.Command, args []string) string {
	cmd.SuggestionsMinimumDistance = cmd.Root().SuggestionsMinimumDistance
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if near := cmd.SuggestionsFor(arg); len(near) > 0 {
			return fmt.Sprintf("Did you mean %q?", cmd.CommandPath()+" "+near[0])
		}
		break
	}
	return fmt.Sprintf("See %s --help", cmd.CommandPath())
}
