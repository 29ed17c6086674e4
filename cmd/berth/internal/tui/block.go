package tui

import (
	"fmt"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/run"
)

// maxShown is how many attempts the block lists.
const maxShown = 8

// hang is how far the further lines of a row are indented, in columns.
const hang = 4

// block keeps the attempts that are under way at the bottom of the terminal,
// under the lines of those that have ended.
type block struct {
	mu      sync.Mutex // the state, between Event and View
	s       *state
	width   int // of the terminal, in columns
	height  int // in lines
	program *tea.Program
	done    chan struct{}
}

func newBlock(s *state) *block {
	b := &block{s: s, width: 80, height: 24, done: make(chan struct{})}
	// Signals are the command's own, and nothing is read from the keyboard: so
	// the terminal must not be asked what it can do, since its answer would be
	// taken for what the user types next. Behind ssh it is not asked.
	quiet := []string{"TERM=xterm-256color", "SSH_TTY=none"}
	b.program = tea.NewProgram(b, tea.WithOutput(s.o.Err), tea.WithInput(nil), tea.WithoutSignalHandler(), tea.WithEnvironment(quiet))
	go func() {
		defer close(b.done)
		_, _ = b.program.Run() //nolint:errcheck // a terminal that went away is not an error
	}()
	return b
}

type tick time.Time

func next() tea.Cmd {
	return tea.Tick(200*time.Millisecond, func(t time.Time) tea.Msg { return tick(t) })
}

// Init implements tea.Model.
func (b *block) Init() tea.Cmd { return next() }

// Update implements tea.Model.
func (b *block) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tick:
		return b, next()
	case tea.WindowSizeMsg:
		b.mu.Lock()
		if m.Width > 0 { // some have no size
			b.width = m.Width
		}
		if m.Height > 0 {
			b.height = m.Height
		}
		b.mu.Unlock()
	}
	return b, nil
}

// View implements tea.Model.
func (b *block) View() tea.View {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	sum := strings.Split(terminal.Wrap(b.s.summary(now), b.width, hang), "\n")
	var rows []string
	for i, id := range b.s.order {
		a := b.s.running[id]
		row := fmt.Sprintf("  %s  %-10s %8s", a.name, a.phase, terminal.Seconds(now.Sub(a.since)))
		if a.steps > 0 {
			row += "  " + terminal.Count(a.steps, "step", "steps")
		}
		more := strings.Split(terminal.Wrap(row, b.width, hang), "\n")
		if i == maxShown || i > 0 && len(rows)+len(more)+len(sum)+2 > b.height { // one line for the rest, and one above the block
			rows = append(rows, fmt.Sprintf("  … and %d more", len(b.s.order)-i))
			break
		}
		rows = append(rows, more...)
	}
	for i, r := range rows {
		rows[i] = terminal.Paint(b.s.o.Color, terminal.Faint, r)
	}
	v := tea.NewView(strings.Join(append(rows, sum...), "\n"))
	v.DisableBracketedPasteMode = true
	return v
}

// Event implements Watcher.
func (b *block) Event(e run.Event) {
	b.mu.Lock()
	printed := b.s.take(e)
	b.mu.Unlock()
	b.print(printed)
}

// Write implements Watcher: lines go above the block.
func (b *block) Write(p []byte) (int, error) {
	b.print(strings.Split(strings.TrimRight(string(p), "\n"), "\n"))
	return len(p), nil
}

// print prints lines above the block. One that is longer than the terminal is
// wide is wrapped here: what the terminal wraps is not counted right.
func (b *block) print(lines []string) {
	b.mu.Lock()
	width := b.width
	b.mu.Unlock()
	for _, line := range lines {
		b.program.Send(tea.Println(terminal.Wrap(line, width, hang))()) // Program.Println would block after its end
	}
}

// Close implements Watcher.
func (b *block) Close() {
	b.mu.Lock()
	b.s.order = nil
	b.mu.Unlock()
	b.program.Quit()
	<-b.done
	fmt.Fprintln(b.s.o.Err) // the summary stays as the last line
}
