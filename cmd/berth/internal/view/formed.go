package view

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of tables and notebooks.
const (
	maxTableRows    = 500
	maxTableColumns = 60
	maxField        = 2 << 10  // bytes of one field
	maxNotebook     = 32 << 20 // bytes of a file
	maxCells        = 500
	maxOutputs      = 50 // of a cell
)

const notebookExt = ".ipynb"

// formed returns what a file holds, if it has its own form, and what a template
// calls it. err says why a file is shown as text although its name promises more.
func formed(dir, name string) (kind string, shown any, err error) {
	switch strings.ToLower(path.Ext(name)) {
	case ".csv":
		shown, err = tableOf(dir, name, ',')
		kind = "Table"
	case ".tsv":
		shown, err = tableOf(dir, name, '\t')
		kind = "Table"
	case notebookExt:
		shown, err = notebookOf(dir, name)
		kind = "Notebook"
	}
	if err != nil {
		return "", nil, err
	}
	return kind, shown, nil
}

// table is the beginning of a table.
type table struct {
	Head []string
	Rows [][]string
	Cut  bool // it has more rows or columns, or longer fields
}

// tableOf reads the beginning of a file of fields.
func tableOf(dir, name string, comma rune) (*table, error) {
	f, err := untrusted.Open(dir, name, maxFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := &table{}
	limited := &io.LimitedReader{R: f, N: maxPart}
	in := csv.NewReader(limited)
	in.Comma, in.LazyQuotes, in.FieldsPerRecord, in.ReuseRecord = comma, true, -1, true
	for len(t.Rows) < maxTableRows {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			t.Cut = t.Cut || limited.N <= 0
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it cannot be read as a table: %w", err)
		}
		row := make([]string, 0, min(len(record), maxTableColumns))
		for _, field := range record[:min(len(record), maxTableColumns)] {
			p := partOf(field, maxField)
			t.Cut = t.Cut || p.Cut > 0
			row = append(row, p.Text)
		}
		t.Cut = t.Cut || len(record) > maxTableColumns
		if t.Head == nil {
			t.Head = row
		} else {
			t.Rows = append(t.Rows, row)
		}
	}
	t.Cut = true
	return t, nil
}

// sourceText is a text of a notebook: a text, or a list of its lines.
type sourceText string

// UnmarshalJSON accepts both.
func (s *sourceText) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*s = sourceText(one)
		return nil
	}
	var all []string
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*s = sourceText(strings.Join(all, ""))
	return nil
}

// notebook is a Jupyter notebook.
type notebook struct {
	Cells []struct {
		Kind    string     `json:"cell_type"`
		Source  sourceText `json:"source"`
		Outputs []struct {
			Kind      string                     `json:"output_type"`
			Text      sourceText                 `json:"text"`
			Traceback []string                   `json:"traceback"`
			Data      map[string]json.RawMessage `json:"data"`
		} `json:"outputs"`
	} `json:"cells"`
}

func readNotebook(dir, name string) (*notebook, error) {
	b, err := untrusted.Read(dir, name, maxNotebook)
	if err != nil {
		return nil, err
	}
	n := &notebook{}
	if err = json.Unmarshal(b, n); err != nil {
		return nil, fmt.Errorf("it cannot be read as a notebook: %w", err)
	}
	return n, nil
}

// notebookCell is a cell of a notebook for a page.
type notebookCell struct {
	Kind    string
	Source  part
	Outputs []notebookOutput
}

// notebookOutput is a text or a picture.
type notebookOutput struct {
	Text         part
	Picture      bool
	Cell, Output int
}

// notebookOf reads the cells of a notebook. Nothing in it is rendered: its HTML is
// left out, because the same is there as text.
func notebookOf(dir, name string) (all []notebookCell, err error) {
	n, err := readNotebook(dir, name)
	if err != nil {
		return nil, err
	}
	for i := range n.Cells[:min(len(n.Cells), maxCells)] {
		c := &n.Cells[i]
		cell := notebookCell{Kind: c.Kind, Source: partOf(string(c.Source), maxText)}
		for j := range c.Outputs[:min(len(c.Outputs), maxOutputs)] {
			o := &c.Outputs[j]
			out := notebookOutput{Cell: i, Output: j, Picture: imageIn(o.Data) != nil}
			var text sourceText
			_ = json.Unmarshal(o.Data["text/plain"], &text) // there may be none
			out.Text = partOf(string(o.Text)+string(text)+strings.Join(o.Traceback, "\n"), maxText)
			cell.Outputs = append(cell.Outputs, out)
		}
		all = append(all, cell)
	}
	return all, nil
}

// imageIn returns the picture of an output, in base64; nil if it has none.
func imageIn(data map[string]json.RawMessage) json.RawMessage {
	for _, kind := range []string{"image/png", "image/jpeg"} {
		if b := data[kind]; b != nil {
			return b
		}
	}
	return nil
}

// pictureOf returns the picture of an output of a notebook.
func pictureOf(dir, name string, cell, output int64) ([]byte, error) {
	n, err := readNotebook(dir, name)
	if err != nil {
		return nil, err
	}
	if cell >= int64(len(n.Cells)) || output >= int64(len(n.Cells[cell].Outputs)) {
		return nil, fmt.Errorf("%w: the notebook has no such output", errMissing)
	}
	var text sourceText
	if err = json.Unmarshal(imageIn(n.Cells[cell].Outputs[output].Data), &text); err != nil {
		return nil, fmt.Errorf("the output has no picture: %w", err)
	}
	return base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields([]byte(text)), nil)))
}
