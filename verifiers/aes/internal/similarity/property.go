package similarity

import "strings"

// property is one that elements are compared by.
type property struct {
	weight  float64                             // 0: it only filters
	similar func(x, y *Element) (float64, bool) // false: it cannot be read
	filter  float64                             // above which similarity an element fits; below 0: it does not filter
}

// noFilter is the filter of a property that is none. That of a choice is below 1,
// and above everything else.
const (
	noFilter   = -1
	fitsChoice = 0.999999
	fitsText   = 0.6
	fitsSome   = 0.01
)

// css is a property whose computed values are compared.
func css(weight, filter float64, name string, like func(x, y string) (float64, bool)) property {
	return property{weight, func(x, y *Element) (float64, bool) {
		a, ok := x.style(name)
		b, ok2 := y.style(name)
		if !ok || !ok2 {
			return 0, false
		}
		return like(a, b)
	}, filter}
}

// classes is the filter by class: both have the same, or none.
func classes() property {
	return property{0, func(x, y *Element) (float64, bool) {
		a, has := x.Attribute("class")
		b, has2 := y.Attribute("class")
		if has != has2 {
			return 0, true
		}
		return likeChoice(a, b)
	}, fitsChoice}
}

func (e *Element) split() *words {
	if e.words == nil {
		e.words = split(e.Text())
	}
	return e.words
}

// always is a property that agrees with everything.
func always(weight float64) property {
	return property{weight, func(_, _ *Element) (float64, bool) { return 1, true }, fitsChoice}
}

// properties returns all, by name, as the published program has them: with its
// weights, and with its errors.
func properties() map[string]property {
	text := property{6.8, func(x, y *Element) (float64, bool) { return likeText(x.split(), y.split()), true }, fitsText}
	all := map[string]property{
		"text": text, "placeholder": text, "value": text, // an error: the text is compared
		"src": always(12.6), "type": always(18.9), "has_text": always(44), // an error: these always agree
		"class":                      classes(),
		"text-shadow":                css(83, noFilter, "text-shadow", likeTextShadow),
		"box-shadow":                 css(56.7, noFilter, "box-shadow", likeShadow),
		"background-size":            css(14.3, noFilter, "background-size", likeSize),
		"background-linear-gradient": css(18, noFilter, "background", likeGradient),
	}
	for name, weight := range map[string]float64{
		"color": 30, "background-color": 59, "outline-color": 16.9,
		"border-bottom-color": 16.9, "border-right-color": 16.9, "border-left-color": 16.9, "border-top-color": 16.9,
	} {
		all[name] = css(weight, fitsSome, name, likeColour)
	}
	for name, weight := range map[string]float64{
		"border-bottom-width": 2.1, "border-right-width": 2.1, "border-left-width": 2.1,
		"border-bottom-left-radius": 100, "border-bottom-right-radius": 100, "border-top-left-radius": 100, "border-top-right-radius": 100,
		"font-size": 9.8, "height": 31.92, "width": 31.92, "letter-spacing": 67,
	} {
		all[name] = css(weight, fitsSome, name, likeLength)
	}
	for name, weight := range map[string]float64{
		"background-image": 12.6, "background-repeat": 24.5, "outline-style": 79.2, "outline-width": 2.1,
		"border-bottom-style": 79.2, "border-right-style": 79.2, "border-left-style": 79.2, "border-top-style": 79.2,
		"font-family": 94.6, "font-style": 94.6, "font-weight": 2.1, "tab-size": 50.8, "display": 51,
	} {
		all[name] = css(weight, fitsChoice, name, likeChoice)
	}
	all["border-top-width"] = all["border-left-width"] // an error
	return all
}

// parts returns the properties that one of data-evalby stands for.
func parts(name string, x *Element) []string {
	switch name {
	case "background":
		if all, _ := x.style("background"); strings.Contains(all, "linear-gradient") {
			return []string{"background-linear-gradient", "background-color", "background-repeat"}
		}
		return nil
	case "border-radius":
		return []string{"border-bottom-left-radius", "border-bottom-right-radius", "border-top-left-radius", "border-top-right-radius"}
	case "border":
		return []string{"border-bottom-width", "border-top-width", "border-left-width", "border-right-width"}
	case "border-bottom": // an error: it is not a shorthand
		return nil
	case "border-top", "border-left", "border-right":
		return []string{name + "-width", name + "-color"}
	case "outline":
		return []string{"outline-style", "outline-width", "outline-color"}
	}
	return []string{name}
}
