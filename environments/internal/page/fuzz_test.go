package page

import (
	"encoding/json"
	"testing"
)

// Whatever a browser says of the accessibility of two frames that hold each other,
// the text ends within its limit.
func FuzzAXTree(f *testing.F) {
	f.Add([]byte(`[{"nodeId":"1","role":{"value":"button"},"name":{"value":"a"},"childIds":["2","1"],"backendDOMNodeId":1},null,{"nodeId":"2","parentId":"1","role":{"value":"link"}}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var one, two []*axNode
		if json.Unmarshal(text, &one) != nil || json.Unmarshal(text, &two) != nil {
			return
		}
		main := newAXFrame(one)
		w := &axWriter{frames: map[int64]*axFrame{1: newAXFrame(two), 2: main}, limit: 4096, bid: func(int64) string { return "b" }}
		for _, root := range main.roots {
			w.node(main, root, place{})
		}
		if w.out.Len() > w.limit+len("(the rest is left out)\n")+1 {
			t.Errorf("%d bytes", w.out.Len())
		}
	})
}
