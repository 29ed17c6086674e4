package main

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/config"
)

// The page about the comparators has every setting with its default.
func TestThePageHasEverySetting(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/compare.md")
	if err != nil {
		t.Fatal(err)
	}
	common, sections, _ := strings.Cut(string(text), "\n## compare-fields\n")
	sections = "\n## compare-fields\n" + sections
	for name, settings := range map[string]any{
		"compare-fields": FieldsConfig{}, "compare-timeline": TimelineConfig{}, "compare-graph": Inputs{},
		"compare-scene": SceneConfig{}, "compare-circuit": CircuitConfig{},
	} {
		_, section, ok := strings.Cut(sections, "\n## "+name+"\n")
		if !ok {
			t.Errorf("there is no section %s", name)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		schema, err := config.SchemaOf(settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range schema.Fields {
			row := ""
			for line := range strings.Lines(common + section) {
				if strings.HasPrefix(line, "| ") && strings.Contains(line, "`"+f.Name+"`") {
					row += line
				}
			}
			def := strings.Trim(string(f.Default), `"`)
			if row == "" || !strings.Contains(row, def) {
				t.Errorf("%s: the tables lack %s with the default %s", name, f.Name, def)
			}
		}
	}
}
