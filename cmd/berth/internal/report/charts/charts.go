// Package charts makes the charts of results: Vega-Lite specifications without
// their data, and the libraries that draw them.
//
// A specification names its data; the page that shows it puts the rows in. The package
// knows no runs and writes no HTML.
package charts

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"maps"
)

//go:embed vega
var vendored embed.FS

// Library is a JavaScript library, as it was published.
type Library struct {
	Name, Version string
	Licence       string // its text
	Packed        []byte // the minified source, with gzip
}

// Libraries returns the libraries that draw the charts, in the order in which they
// have to be loaded. Their versions are those of scripts/vendor-charts.
func Libraries() ([]Library, error) {
	all := []Library{{Name: "vega", Version: "6.4.0"}, {Name: "vega-lite", Version: "6.5.0"}, {Name: "vega-embed", Version: "7.3.0"}}
	for i := range all {
		l := &all[i]
		licence, err := vendored.ReadFile("vega/" + l.Name + ".LICENSE")
		if err != nil {
			return nil, err
		}
		l.Licence = string(licence)
		if l.Packed, err = vendored.ReadFile("vega/" + l.Name + ".js.gz"); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Source returns the source of a library.
func (l *Library) Source() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(l.Packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	return io.ReadAll(r)
}

// Spec is a Vega-Lite specification.
type Spec map[string]any

// schema is the version of the language that the specifications are written in.
const schema = "https://vega.github.io/schema/vega-lite/v6.json"

type object = map[string]any

// spec returns a specification over the rows of that name. Its width is that of
// the page.
func spec(data, description string, more object) Spec {
	s := Spec{
		"$schema": schema, "description": description, "data": object{"name": data}, "width": "container",
		"autosize": object{"type": "fit-x", "contains": "padding"},
	}
	maps.Copy(s, more)
	return s
}

func percent(field, title string) object {
	return object{"field": field, "type": "quantitative", "title": title, "axis": object{"format": ".0%"}}
}

func shown(field, title, format string) object {
	o := object{"field": field, "title": title}
	if format != "" {
		o["type"], o["format"] = "quantitative", format
	}
	return o
}

// AsNumbers changes a chart of rates into one of scores that are not fractions: they
// are written as they are, and their colors span what there is.
func AsNumbers(s Spec) Spec {
	asNumbers(object(s))
	return s
}

func asNumbers(v any) {
	switch v := v.(type) {
	case object:
		for name, value := range v {
			switch {
			case name == "format" && (value == ".0%" || value == ".1%"):
				v[name] = ".4~g"
			case name == "domain":
				if _, fixed := value.([]int); fixed {
					delete(v, name)
				}
			default:
				asNumbers(value)
			}
		}
	case []object:
		for _, one := range v {
			asNumbers(one)
		}
	}
}

// Leaderboard shows the success rate of each cell with its interval. Its rows have
// cell, rate, low, high (fractions) and tasks.
func Leaderboard(cells int) Spec {
	y := object{"field": "cell", "type": "nominal", "sort": object{"field": "rate", "order": "descending"}, "title": nil, "axis": object{"labelLimit": 220}}
	return spec("leaderboard", "Success rate of each cell with its 95 % interval", object{
		"height": object{"step": max(16, min(28, 800/max(cells, 1)))},
		"encoding": object{"y": y, "tooltip": []object{
			shown("cell", "cell", ""), shown("rate", "success rate", ".1%"), shown("low", "from", ".1%"), shown("high", "to", ".1%"), shown("tasks", "tasks", "d"),
		}},
		"layer": []object{
			{"mark": object{"type": "rule", "strokeWidth": 2}, "encoding": object{
				"x": object{"field": "low", "type": "quantitative", "scale": object{"zero": true}, "title": "success rate", "axis": object{"format": ".0%", "tickCount": 10, "labelOverlap": true, "labelSeparation": 4}}, "x2": object{"field": "high"},
			}},
			{"mark": object{"type": "point", "filled": true, "size": 80, "opacity": 1}, "encoding": object{"x": object{"field": "rate", "type": "quantitative"}}},
		},
	})
}

// Heat shows the mean score of each task in each cell. Its rows have task, cell,
// score (a fraction, null if not measured), measured and planned. Tasks are sorted
// by their order.
func Heat(tasks, cells int) Spec {
	step := max(3, min(18, 4800/max(tasks, 1))) // a browser draws no larger picture than some 8,000 pixels
	labels, angle := step >= 12, -60
	if cells <= 5 {
		angle = 0
	}
	return spec("heat", "Mean score of each task in each cell", object{
		"padding": object{"left": 5, "top": 5, "bottom": 5, "right": 40}, // for the last label, which is slanted
		"height":  object{"step": step},
		"mark":    object{"type": "rect", "cursor": "pointer", "invalid": "show"},
		"encoding": object{
			"x": object{"field": "cell", "type": "nominal", "sort": nil, "title": nil, "axis": object{"orient": "top", "labelAngle": angle, "labelLimit": 140, "labels": cells <= 60}},
			"y": object{"field": "task", "type": "nominal", "sort": nil, "title": nil, "axis": object{"labelLimit": 140, "labels": labels, "ticks": labels}},
			"color": object{
				"field": "score", "type": "quantitative", "title": "mean score", "scale": object{"domain": []int{0, 1}, "scheme": "viridis"},
				"legend":    object{"orient": "top", "format": ".0%", "gradientLength": 160},
				"condition": object{"test": "datum.score === null", "value": "#888"},
			},
			"tooltip": []object{shown("task", "task", ""), shown("cell", "cell", ""), shown("score", "mean score", ".1%"), shown("measured", "measured", "d"), shown("planned", "planned", "d")},
		},
		"config": object{"view": object{"stroke": nil}},
	})
}

// Pareto shows success rate against cost. Its rows have cell, rate, cost (USD for
// each trial) and front.
func Pareto() Spec {
	x := object{"field": "cost", "type": "quantitative", "title": "mean cost of a trial, in USD"}
	tip := []object{shown("cell", "cell", ""), shown("rate", "success rate", ".1%"), shown("cost", "USD a trial", ".4~f")}
	return spec("pareto", "Success rate against the mean cost of a trial", object{
		"height":   300,
		"encoding": object{"x": x, "y": percent("rate", "success rate"), "tooltip": tip},
		"layer": []object{
			{"transform": []object{{"filter": "datum.front"}}, "mark": object{"type": "line", "interpolate": "step-after", "strokeDash": []int{4, 4}}},
			{"mark": object{"type": "point", "filled": true, "size": 90, "opacity": 1}, "encoding": object{"color": object{"condition": object{"test": "datum.front", "value": "#d9730d"}, "value": "#8a94a6"}}},
			{"transform": []object{{"filter": "datum.front"}}, "mark": object{"type": "text", "dy": -12, "limit": 160}, "encoding": object{"text": object{"field": "cell"}}},
		},
	})
}

// Outcomes shows the outcomes of each cell. Its rows have cell, outcome and trials.
// names are the outcomes that occur, and colors theirs.
func Outcomes(cells int, names, colors []string) Spec {
	return spec("outcomes", "Outcomes of the trials of each cell", object{
		"height": object{"step": max(12, min(24, 700/max(cells, 1)))}, "mark": "bar",
		"encoding": object{
			"y":       object{"field": "cell", "type": "nominal", "sort": nil, "title": nil, "axis": object{"labelLimit": 220}},
			"x":       object{"field": "trials", "type": "quantitative", "title": "trials", "axis": object{"format": "d", "tickMinStep": 1}},
			"color":   object{"field": "outcome", "type": "nominal", "title": nil, "scale": object{"domain": names, "range": colors}, "legend": object{"orient": "bottom", "columns": 4}},
			"tooltip": []object{shown("cell", "cell", ""), shown("outcome", "outcome", ""), shown("trials", "trials", "d")},
		},
	})
}
