package circuit

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/output"
)

// point is a place on the drawing. Parts are connected where their points are the
// same.
type point struct{ x, y int }

// String returns the coordinates.
func (p point) String() string { return fmt.Sprintf("(%d, %d)", p.x, p.y) }

// kind is what a part does.
type kind int

const (
	wire   kind = iota + 1 // joins its ends
	source                 // an input of the circuit
	sink                   // an output
	toggle                 // a switch: an output if its net is driven, else an input
	ground                 // constant 0
	gate
)

// part is one part of a circuit.
type part struct {
	kind     kind
	tag      string
	from, to point
	in       int // pins of a gate
}

// tags are the parts by their name in XML. In the older text gates have numbers.
var tags = map[string]kind{
	"w": wire, "rw": wire, "L": source, "M": sink, "s": toggle, "S": toggle, "g": ground, "I": gate,
	"And": gate, "Nand": gate, "Or": gate, "Nor": gate, "Xor": gate, "Xnor": gate,
}

var codes = map[string]string{"150": "And", "151": "Nand", "152": "Or", "153": "Nor", "154": "Xor", "155": "Xnor"}

// ignored are texts and scopes, which are not parts of the circuit.
func ignored(tag string) bool { return tag == "o" || tag == "x" }

// maxPins is how many pins a gate may have.
const maxPins = 16

// grid is the distance between the pins of a gate.
const grid = 16

// pins returns the points of a gate's inputs. They lie across its axis.
func (p *part) pins() []point {
	if p.tag == "I" {
		return []point{p.from}
	}
	horizontal := abs(p.to.x-p.from.x) >= abs(p.to.y-p.from.y)
	out := make([]point, 0, p.in)
	for i := range p.in {
		at := i - p.in/2
		if p.in%2 == 0 && at >= 0 {
			at++ // nothing is in the middle
		}
		if horizontal {
			out = append(out, point{p.from.x, p.from.y + grid*at})
		} else {
			out = append(out, point{p.from.x + grid*at, p.from.y})
		}
	}
	return out
}

func abs(i int) int { return max(i, -i) }

// output returns the column of a gate from those of its pins.
func (p *part) output(in []uint64) uint64 {
	out := in[0]
	for _, v := range in[1:] {
		switch p.tag {
		case "And", "Nand":
			out &= v
		case "Or", "Nor":
			out |= v
		default:
			out ^= v
		}
	}
	switch p.tag {
	case "I", "Nand", "Nor", "Xnor":
		return ^out
	}
	return out
}

// begin matches the begin of a circuit in XML or as the older text.
var begin = regexp.MustCompile(`^\s*(<cir\b|\$ |(1\d\d|rw|[LMIgwsSox])( -?\d+){4}\b)`)

// Is reports whether a text begins as a circuit does.
func Is(text string) bool { return begin.MatchString(text) }

// Find returns the circuit in a text, if there is one between other text.
func Find(text string) (string, bool) {
	if Is(text) {
		return text, true
	}
	start := strings.Index(text, "<cir")
	if start < 0 {
		return "", false
	}
	text = text[start:]
	if end := strings.Index(text, "</cir>"); end >= 0 {
		text = text[:end+len("</cir>")]
	}
	return text, true
}

func parse(text string) ([]part, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "<") {
		return parseXML(text)
	}
	return parseDump(text)
}

// parseXML reads <cir …><And x="x1 y1 x2 y2" in="2"/>…</cir>.
func parseXML(text string) (list []part, err error) {
	d := xml.NewDecoder(strings.NewReader(text))
	root := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			err = errors.New("it ends too early")
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a circuit in XML: %w", err)
		}
		if _, ended := token.(xml.EndElement); ended {
			return list, nil
		}
		start, ok := token.(xml.StartElement)
		switch {
		case !ok:
			continue
		case !root:
			if start.Name.Local != "cir" {
				return nil, fmt.Errorf("it is not a circuit: it begins with <%s>", output.First(start.Name.Local, 40))
			}
			root = true
			continue
		}
		if err = d.Skip(); err != nil {
			return nil, fmt.Errorf("it is not a circuit in XML: %w", err)
		}
		if ignored(start.Name.Local) {
			continue
		}
		attributes := map[string]string{}
		for _, a := range start.Attr {
			attributes[a.Name.Local] = a.Value
		}
		if list, err = add(list, start.Name.Local, strings.Fields(attributes["x"]), attributes["in"]); err != nil {
			return nil, err
		}
	}
}

// parseDump reads the older text: a line for each part, with its name or number,
// its coordinates, flags, and for a gate the number of its pins. Lines with $ are
// settings.
func parseDump(text string) (list []part, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0] == "$" || ignored(words[0]) {
			continue
		}
		tag, in := words[0], ""
		if name, ok := codes[tag]; ok {
			tag = name
			if len(words) > 6 {
				in = words[6]
			}
		} else if tags[tag] == gate && tag != "I" {
			return nil, fmt.Errorf("the part %q has a name of XML", tag)
		}
		if list, err = add(list, tag, words[1:min(len(words), 5)], in); err != nil {
			return nil, err
		}
	}
	if err = lines.Err(); err != nil {
		return nil, fmt.Errorf("it is not a circuit: %w", err)
	}
	return list, nil
}

// maxPlace is the largest coordinate.
const maxPlace = math.MaxInt32

// add adds a part to the list.
func add(list []part, tag string, place []string, in string) ([]part, error) {
	p := part{kind: tags[tag], tag: tag, in: 2}
	if p.kind == 0 {
		return nil, fmt.Errorf("the part %q is unknown", output.First(tag, 40))
	}
	if len(list) == maxParts {
		return nil, fmt.Errorf("it has more than %d parts", maxParts)
	}
	if len(place) != 4 {
		return nil, fmt.Errorf("a part %q has %d coordinates, and needs 4: a pin is missing", tag, len(place))
	}
	for i, to := range []*int{&p.from.x, &p.from.y, &p.to.x, &p.to.y} {
		n, err := strconv.Atoi(place[i])
		if err != nil || abs(n) > maxPlace {
			return nil, fmt.Errorf("a part %q has the coordinate %q", tag, output.First(place[i], 40))
		}
		*to = n
	}
	if in != "" && p.kind == gate && tag != "I" {
		n, err := strconv.Atoi(in)
		if err != nil || n < 2 || n > maxPins {
			return nil, fmt.Errorf("a part %q has %q pins, from 2 to %d are possible", tag, output.First(in, 40), maxPins)
		}
		p.in = n
	}
	return append(list, p), nil
}
