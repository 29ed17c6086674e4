package export

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/renameio/v2"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
)

// Format is a format of tables.
type Format string

// The formats of tables.
const (
	CSV     Format = "csv"
	JSONL   Format = "jsonl"
	Parquet Format = "parquet"
)

// Done says what was exported.
type Done struct {
	Rows    int // of the table, or files
	Columns int
	// Notes say what is missing in the export, and why.
	Notes []string
}

// Table writes a table with a row for each attempt of a run to a file. It replaces
// the file only when the whole table was written.
func Table(r *Run, format Format, file string) (*Done, error) {
	extra, left := r.more()
	columns, read := append(Columns(), extra...), &rows{run: r}
	out, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return nil, err
	}
	defer out.Cleanup() //nolint:errcheck // only a temporary file may remain
	w := bufio.NewWriterSize(out, 1<<20)
	switch format {
	case CSV:
		err = writeCSV(w, columns, read.all())
	case JSONL:
		err = writeJSONL(w, columns, read.all())
	case Parquet:
		err = writeParquet(w, columns, read.all())
	default:
		err = fmt.Errorf("no format %q of tables", format)
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", file, err)
	}
	done := &Done{Rows: read.n, Columns: len(columns)}
	if read.damaged > 0 {
		done.Notes = append(done.Notes, "the result.json of "+terminal.Count(read.damaged, "attempt", "attempts")+" cannot be read: only what the journal has is in the table")
	}
	if left > 0 {
		done.Notes = append(done.Notes, fmt.Sprintf("%s no column: there are more than %d names", terminal.Count(left, "score or label has", "scores and labels have"), maxScores))
	}
	return done, out.CloseAtomicallyReplace()
}

// writeCSV writes a header and the rows, with an empty field for what is absent.
func writeCSV(w io.Writer, columns []Column, rows iter.Seq[*row]) error {
	out := csv.NewWriter(w)
	line := make([]string, len(columns))
	for i := range columns {
		line[i] = columns[i].Name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for r := range rows {
		for c := range columns {
			line[c] = plain(columns[c].get(r))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// plain returns a value as text.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	default:
		return ""
	}
}

// writeJSONL writes an object on each line, with null for what is absent. Its keys
// are in the order of the columns.
func writeJSONL(w io.Writer, columns []Column, rows iter.Seq[*row]) error {
	keys := make([][]byte, len(columns))
	for i := range columns {
		key, err := json.Marshal(columns[i].Name)
		if err != nil {
			return err
		}
		keys[i] = key
	}
	var line bytes.Buffer
	for r := range rows {
		line.Reset()
		for c := range columns {
			line.WriteByte("{,"[min(c, 1)])
			line.Write(keys[c])
			line.WriteByte(':')
			b, err := json.Marshal(columns[c].get(r))
			if err != nil {
				return fmt.Errorf("%s of attempt %s: %w", columns[c].Name, r.dir(), err)
			}
			line.Write(b)
		}
		line.WriteString("}\n")
		if _, err := w.Write(line.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
