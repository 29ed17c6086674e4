package main

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-eval/berth/plugins/environment"
)

// Arguments fit their schema, and are the same with the same seed.
func TestArgumentsFitTheirSchema(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","additionalProperties":false,"properties":{"bid":{"type":"string"},"n":{"type":"integer","minimum":3,"maximum":5},"x":{"type":"number","minimum":0,"maximum":1},
		"button":{"enum":["left","right"]},"on":{"type":"boolean"},"files":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},"free":{"type":"string"}},
		"required":["bid","n","x","button","on","files"]}`
	var value any
	if err := json.Unmarshal([]byte(schema), &value); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", value); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := &environment.Observation{Text: "[12] button 'More'"}
	one, two := session{dice: rand.New(rand.NewPCG(7, 0))}, session{dice: rand.New(rand.NewPCG(7, 0))}
	named := 0
	for range 200 {
		a, err := one.arguments(json.RawMessage(schema), seen)
		if err != nil {
			t.Fatal(err)
		}
		b, err := two.arguments(json.RawMessage(schema), seen)
		if err != nil || string(a) != string(b) {
			t.Fatalf("%s and %s, %v", a, b, err)
		}
		var v map[string]any
		if err = json.Unmarshal(a, &v); err != nil {
			t.Fatal(err)
		}
		if err = compiled.Validate(v); err != nil {
			t.Fatalf("%s: %v", a, err)
		}
		if v["bid"] == "12" {
			named++
		}
	}
	if named < 100 {
		t.Errorf("the element that is shown is named %d times of 200", named)
	}
}
