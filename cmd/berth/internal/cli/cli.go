// Package cli is the command line, with one file per command. A command reads
// its flags, calls the core, and prints the result to stdout as text or JSON,
// and everything else to stderr.
//
// It must not decide what a run, a plan or an attempt is. main passes the task
// formats in. No plugin is named except the defaults of `berth try` and `berth
// init`.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/bundles"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/runtimedir"
	"github.com/berth-eval/berth/plugins/task"
)

// version is set by the linker.
var version = "unknown"

// The exit codes.
const (
	exitComplete    = 0   // the run is complete, whatever the scores
	exitErrors      = 1   // complete, but a trial has an error outcome or a requirement is not met
	exitUsage       = 2   // wrong usage or configuration: nothing was started
	exitIncomplete  = 3   // can be resumed
	exitInterrupted = 130 // after cleanup
)

// exit is an error with the exit code of the program. If err is nil, the
// message was already printed.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// app is the state that all commands share.
type app struct {
	*terminal.Printer

	formats []task.Format
	in      io.Reader
	env     func(string) (string, bool)
	verbose bool
	log     zerolog.Logger
	logs    *logs
	failure output.Failure // collected so far, for --json
	forJob  []string       // further variables of plugins: see job.go
}

// Main is the program. It returns the exit code.
func Main(formats ...task.Format) int {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, stop) // from now on a second Ctrl-C ends the program at once
	// A closed pipe must fail a write but not end the run, which has sandboxes
	// to remove. The signal is not ignored, because plugins would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	p := Process{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv}
	return p.Run(ctx, os.Args[1:], formats...)
}

// Process is what the command line has of the process that it runs in.
type Process struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) (string, bool)
}

// Run runs a command until ctx ends, and returns the exit code. args are without
// the name of the program.
func (p Process) Run(ctx context.Context, args []string, formats ...task.Format) int {
	a := &app{formats: formats, in: p.In, env: p.Env, Printer: terminal.New(p.Out, p.Err, p.Env)}
	return a.main(ctx, args)
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.root() //nolint:contextcheck // each command has the context of ExecuteContext
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if lost := a.Lost(); err == nil && lost != nil {
		err = &exit{exitErrors, fmt.Errorf("write the result: %w", lost)}
	}
	if err == nil {
		return exitComplete
	}
	code, said := exitUsage, false
	if _, ok := errors.AsType[usage.Error](err); !ok && cmd == root { // the root command itself cannot fail: the command is unknown
		err = fmt.Errorf("%w. %s", err, usage.Next(root, args))
	}
	if e, ok := errors.AsType[*exit](err); ok {
		code, said = e.code, e.err == nil
	}
	if ctx.Err() != nil && (code == exitUsage || code == exitIncomplete) {
		code, said = exitInterrupted, said || (errors.Is(err, context.Canceled) && !a.JSON)
	}
	if !said {
		a.fail(code, err.Error(), args)
	}
	return code
}

// fail prints to stderr why the program ends with code. With --json it is one
// JSON object on the last line.
func (a *app) fail(code int, message string, args []string) {
	lines := strings.Join(terminal.Lines(message), "\n")
	if !a.JSON && !usage.AsksForJSON(args) {
		a.Notef("%s %s\n", terminal.Paint(a.ErrColor, terminal.Bad, "Error:"), lines)
		return
	}
	f := a.failure
	f.Error, f.Code = lines, code
	if err := a.Fail(f); err != nil {
		a.log.Debug().Err(err).Msg("stderr went away")
	}
}

// because records a line of the reason why a command is about to fail.
func (a *app) because(line string) {
	if a.JSON {
		a.failure.Details = append(a.failure.Details, terminal.Clean(line))
		return
	}
	a.Notef("  %s\n", terminal.Clean(line))
}

// say prints the answer of a command: v as JSON with --json, or else what text prints.
func (a *app) say(v any, text func()) error {
	done, err := a.Answer(v)
	if !done {
		text()
	}
	return err
}

// nowhere lists the commands that need no current folder.
var nowhere = map[string]bool{"help": true, "doctor": true, "gc": true, "list": true, "info": true}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Run agents on tasks in sandboxes, and measure how well they do",
		Long: `Berth runs agents on tasks in sandboxes and measures how well they do. One file
describes an experiment. Berth expands it into trials, runs them, and stores
every attempt.`,
		Example: `  berth doctor                      check what this machine can run
  berth try tasks/hello             run one task with its own solution
  berth plan experiment.hcl         show the trials and what they can cost
  berth run experiment.hcl          run them, and store the run in ./runs
  berth show last                   show the results`,
		Version:      version,
		SilenceUsage: true, SilenceErrors: true, DisableSuggestions: true, SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			level := zerolog.WarnLevel
			if a.verbose {
				level = zerolog.DebugLevel
			}
			a.logs = &logs{to: a.Err}
			a.log = zerolog.New(zerolog.SyncWriter(console(a.logs, !a.ErrColor))).Level(level).With().Timestamp().Logger()
			if _, err := os.Getwd(); errors.Is(err, fs.ErrNotExist) && !nowhere[cmd.Name()] {
				return errors.New("the current folder was removed: change to another one")
			}
			return nil
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.Out) // cobra's own commands, which Strict adds, take it as it is then
	root.SetErr(a.Err)
	f := root.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print the result as JSON")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "print debug logs on stderr")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		a.initCommand(), a.planCommand(), a.validateCommand(), a.runCommand(), a.tryCommand(), a.shellCommand(), a.resumeCommand(), a.ctlCommand(), a.pilotCommand(), a.regradeCommand(), a.auditCommand(), a.replayCommand(),
		a.showCommand(), a.viewCommand(), a.compareCommand(), a.noteCommand(), a.reportCommand(), a.exportCommand(), a.importCommand(), a.taskCommand(), a.pluginCommand(), a.bundles().Command(),
		a.doctorCommand(), a.gcCommand(), a.gatewayCommand(),
	)
	usage.Strict(root)
	return root
}

func (a *app) bundles() *bundles.Commands {
	return &bundles.Commands{Printer: a.Printer, Host: a.host, Env: a.env, Errors: &exit{exitErrors, nil}}
}

// host creates the host of plugins.
func (a *app) host() (*plugin.Host, error) {
	cache := ""
	if dir, err := cacheFolder(); err == nil {
		cache = filepath.Join(dir, "berth", "plugins")
	}
	h, err := plugin.New(plugin.Options{Cache: cache, Env: a.forJob, Log: a.log})
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	return h, nil
}

// cacheFolder returns the user's cache folder and creates it if needed. After
// su the variables may point to the folder of another user, who could then
// forge the cached descriptions of plugins.
func cacheFolder() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	if _, err = os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err = runtimedir.Ours(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if err == nil {
		err = runtimedir.Ours(dir)
	}
	if err == nil {
		err = runtimedir.Writable(dir)
	}
	return dir, err
}

// load reads and plans an experiment. The caller closes it.
func (a *app) load(ctx context.Context, path string, f *experiment.Flags) (*experiment.Loaded, error) {
	return a.loadWith(ctx, path, f, experiment.Options{})
}

// loadWith is load with options about the lock file; the others are set here.
func (a *app) loadWith(ctx context.Context, path string, f *experiment.Flags, o experiment.Options) (l *experiment.Loaded, err error) {
	o.Formats, o.Env, o.Environment = a.formats, a.env, defaultEnvironment
	if o.Host, err = a.host(); err != nil {
		return nil, err
	}
	return experiment.Load(ctx, path, f, o)
}

// experimentPath returns the file or folder of the experiment.
func experimentPath(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// Command returns the whole command line, for generating the reference. It must
// not be executed.
func Command() *cobra.Command {
	none := func(string) (string, bool) { return "", false }
	return (&app{env: none, Printer: terminal.New(io.Discard, io.Discard, none)}).root()
}
