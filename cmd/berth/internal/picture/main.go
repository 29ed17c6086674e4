// Command picture runs the quickstart in its own terminal and writes what
// the terminal shows at the end as an SVG file, for the README.
package main

import (
	"context"
	"fmt"
	"html"
	"image/color"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
)

// Size of the terminal in cells, and of a cell in pixels.
const (
	columns, rows  = 100, 60
	width, height  = 8.4, 18
	margin, header = 16, 34
)

const foreground, background = "#d4d4d4", "#1e1e1e"

// palette has the sixteen basic colors of a terminal.
var palette = [16]string{
	"#000000", "#f14c4c", "#4ec9a0", "#e5c07b", "#569cd6", "#c586c0", "#56b6c2", "#d4d4d4",
	"#808080", "#f14c4c", "#4ec9a0", "#e5c07b", "#569cd6", "#c586c0", "#56b6c2", "#ffffff",
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: picture BERTH EXPERIMENT FILE.svg")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// draw runs the experiment with the built program and writes the last screen to
// the file out.
func draw(berth, experiment, out string) error {
	folder, err := os.MkdirTemp("", "berth-picture")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if berth, err = filepath.Abs(berth); err != nil {
		return err
	}
	if err = os.CopyFS(filepath.Join(folder, experiment), os.DirFS(experiment)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	screen, err := show(exec.CommandContext(ctx, berth, "run", experiment), folder)
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(svg(screen, "berth run "+experiment)), 0o644) //nolint:gosec // a document of the tree, readable by all
}

// show runs cmd in folder on a terminal, and returns the terminal when cmd has
// ended.
func show(cmd *exec.Cmd, folder string) (*vt.Emulator, error) {
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: columns, Rows: rows})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tty.Close() }()
	screen := vt.NewEmulator(columns, rows)
	go func() { _, _ = io.Copy(tty, screen) }() // Answers to queries of the program; ends with the screen.
	_, _ = io.Copy(screen, tty)                 // Ends with an error when the last program has closed the terminal.
	err = cmd.Wait()
	return screen, err
}

// svg renders the lines of screen that are not empty at the end.
func svg(screen *vt.Emulator, title string) string {
	var text []string
	for y := range rows {
		text = append(text, line(screen, y))
	}
	for len(text) > 0 && text[len(text)-1] == "" {
		text = text[:len(text)-1]
	}
	w, h := int(columns*width)+2*margin, header+len(text)*height+margin
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\"", w, h, w, h)
	fmt.Fprintf(&b, " role=\"img\" aria-label=\"%s\">\n", html.EscapeString(title))
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"%s\"/>\n", background)
	fmt.Fprintf(&b, "<g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\" fill=\"%s\" xml:space=\"preserve\">\n", foreground)
	fmt.Fprintf(&b, "<text x=\"%d\" y=\"22\" fill=\"%s\">$ %s</text>\n", margin, palette[2], html.EscapeString(title))
	for y, spans := range text {
		if spans != "" {
			fmt.Fprintf(&b, "<text y=\"%d\">%s</text>\n", header+(y+1)*height-4, spans)
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// line renders one row of the screen: a span for each piece in one style, at its
// place, so that the columns are right in any font.
func line(screen *vt.Emulator, y int) string {
	var b strings.Builder
	for x := 0; x < columns; {
		start, style, text := x, screen.CellAt(x, y).Style, ""
		for x < columns && screen.CellAt(x, y).Style.Equal(&style) {
			cell := screen.CellAt(x, y)
			text += cell.Content
			x += max(1, cell.Width)
		}
		shown := strings.TrimLeft(text, " ")
		start += len(text) - len(shown)
		if shown = strings.TrimRight(shown, " "); shown == "" {
			continue
		}
		for column, word := range words(shown) {
			fmt.Fprintf(&b, "<tspan x=\"%.1f\"%s>%s</tspan>", margin+float64(start+column)*width, attributes(style), html.EscapeString(word))
		}
	}
	return b.String()
}

// words yields the pieces of text between two or more spaces, with their columns.
func words(text string) func(func(int, string) bool) {
	return func(yield func(int, string) bool) {
		column := 0
		for part := range strings.SplitSeq(text, "  ") {
			word := strings.TrimLeft(part, " ")
			if word != "" && !yield(column+ansi.StringWidth(part)-ansi.StringWidth(word), word) {
				return
			}
			column += ansi.StringWidth(part) + 2
		}
	}
}

// attributes are those of a span in style.
func attributes(style uv.Style) string {
	var a string
	if style.Attrs&uv.AttrBold != 0 {
		a += ` font-weight="bold"`
	}
	if style.Attrs&uv.AttrFaint != 0 {
		a += ` opacity="0.6"`
	}
	if style.Fg != nil {
		a += fmt.Sprintf(` fill="%s"`, name(style.Fg))
	}
	return a
}

// name is a color as SVG has it.
func name(c color.Color) string {
	if basic, ok := c.(ansi.BasicColor); ok {
		return palette[basic]
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
