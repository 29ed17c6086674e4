package page

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/berth-eval/berth/environments/internal/cdp"
)

// What is kept of foreign texts.
const (
	maxDialogs = 100
	maxDialog  = 2000 // bytes
	maxHosts   = 100
)

// event has the members of those events that are looked at.
type event struct {
	Session string          `json:"sessionId"`
	Target  string          `json:"targetId"`
	Info    targetInfo      `json:"targetInfo"`
	Frame   string          `json:"frameId"`
	Name    string          `json:"name"`
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Request string          `json:"requestId"`
	Asked   request         `json:"request"`
	Data    json.RawMessage `json:"data"`
	Reason  string          `json:"reason"`
}

type targetInfo struct {
	ID      string `json:"targetId"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	URL     string `json:"url"`
	Context string `json:"browserContextId"`
}

type request struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
}

// happened handles an event. It does not wait.
func (b *Browser) happened(e cdp.Event) {
	var v event
	if json.Unmarshal(e.Params, &v) != nil {
		return // of an event that is not looked at
	}
	switch e.Method {
	case "Target.attachedToTarget":
		b.attached(&v)
	case "Target.targetInfoChanged":
		b.mu.Lock()
		if i := b.index(v.Info.ID); i >= 0 {
			b.tabs[i].url, b.tabs[i].title = v.Info.URL, v.Info.Title
		}
		b.mu.Unlock()
	case "Target.targetDestroyed":
		b.gone(v.Target)
	case "Fetch.requestPaused":
		go b.serve(e.Session, &v)
	case "Inspector.targetCrashed", "Page.lifecycleEvent", "Page.frameStartedLoading", "Page.frameStoppedLoading", "Page.frameDetached", "Page.javascriptDialogOpening", "Page.fileChooserOpened", "Input.dragIntercepted":
		b.ofTab(e, &v)
	}
}

// attached makes a tab of a new page. Another target, such as a worker, continues.
func (b *Browser) attached(v *event) {
	b.mu.Lock()
	ours := v.Info.Type == "page" && v.Info.Context == b.context && b.context != ""
	surplus := ours && b.set.OnePage && len(b.tabs) > 0
	if ours = ours && !surplus; ours {
		t := &tab{
			target: v.Info.ID, session: v.Session, ready: make(chan struct{}), url: v.Info.URL, title: v.Info.Title,
			loading: map[string]bool{},
		}
		b.tabs = append(b.tabs, t)
		b.active = t
		b.changed()
		go b.prepare(t)
	}
	b.mu.Unlock()
	if !ours {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), answerTime)
			defer cancel()
			// One that cannot be told, such as a page that is closed again, needs nothing.
			_ = b.conn.Do(ctx, v.Session, "Fetch.enable", object{"patterns": []object{{"urlPattern": "*"}}}, nil)
			_ = b.conn.Do(ctx, v.Session, "Runtime.runIfWaitingForDebugger", nil, nil)
			if surplus { // while it waits, so does the page that opened it
				_ = b.conn.Do(ctx, "", "Target.closeTarget", object{"targetId": v.Info.ID}, nil)
			}
		}()
	}
}

// gone forgets a tab. The last one that is left becomes the active one.
func (b *Browser) gone(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.index(target)
	if i < 0 {
		return
	}
	if b.active == b.tabs[i] {
		b.active = nil
	}
	b.tabs = slices.Delete(b.tabs, i, i+1)
	if b.active == nil && len(b.tabs) > 0 {
		b.active = b.tabs[len(b.tabs)-1]
	}
	b.changed()
}

// changed wakes those that wait for a tab. The caller holds mu.
func (b *Browser) changed() {
	close(b.opened)
	b.opened = make(chan struct{})
}

// ofTab handles an event of a page.
func (b *Browser) ofTab(e cdp.Event, v *event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.tabs, func(t *tab) bool { return t.session == e.Session })
	if i < 0 {
		return
	}
	t := b.tabs[i]
	switch e.Method {
	case "Inspector.targetCrashed":
		t.crashed = true
	case "Page.lifecycleEvent":
		switch {
		case v.Frame != t.target: // a frame has an empty document first, whose content is loaded at once
		case v.Name == "init":
			t.loading[v.Frame] = true
		case v.Name == "DOMContentLoaded":
			delete(t.loading, v.Frame)
		}
	case "Page.frameStartedLoading":
		t.loading[v.Frame] = true
	case "Page.frameStoppedLoading":
		delete(t.loading, v.Frame)
	case "Page.frameDetached":
		if v.Reason != "swap" { // the frame lives on in another process
			delete(t.loading, v.Frame)
		}
	case "Page.javascriptDialogOpening":
		if len(b.dialogs) < maxDialogs {
			b.dialogs = append(b.dialogs, v.Type+": "+v.Message[:min(len(v.Message), maxDialog)])
		}
		go func() { // leaving a page is not hindered
			ctx, cancel := context.WithTimeout(context.Background(), answerTime)
			defer cancel()
			_ = b.conn.Do(ctx, t.session, "Page.handleJavaScriptDialog", object{"accept": v.Type == "beforeunload" || b.set.AcceptDialogs}, nil)
		}()
	case "Page.fileChooserOpened":
		offer(t.chooser, e.Params)
	case "Input.dragIntercepted":
		offer(t.drag, v.Data)
	}
}

// offer sends to an action that waits, if there is one.
func offer(to chan json.RawMessage, v json.RawMessage) {
	select {
	case to <- v: // never if it is nil
	default:
	}
}

// serve answers a request of a page: with the task's files at Origin, and with an
// error elsewhere, unless the network is open.
func (b *Browser) serve(session string, v *event) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	u, err := url.Parse(v.Asked.URL)
	switch {
	case err == nil && u.Scheme+"://"+u.Host == Origin && b.set.Files != nil:
		err = b.conn.Do(ctx, session, "Fetch.fulfillRequest", b.file(ctx, v), nil)
	case err == nil && (b.set.Open || slices.Contains([]string{"data", "blob", "about", "chrome-error"}, u.Scheme)):
		err = b.conn.Do(ctx, session, "Fetch.continueRequest", object{"requestId": v.Request}, nil)
	default:
		host := "a URL that cannot be read"
		if err == nil {
			host = u.Host
		}
		b.mu.Lock()
		if _, known := b.blocked[host]; known || len(b.blocked) < maxHosts {
			b.blocked[host]++
		}
		b.mu.Unlock()
		err = b.conn.Do(ctx, session, "Fetch.failRequest", object{"requestId": v.Request, "errorReason": "AddressUnreachable"}, nil)
	}
	_ = err // the page was closed meanwhile, or the browser has ended, which others see
}

// file returns the answer with a file of the task.
func (b *Browser) file(ctx context.Context, v *event) object {
	w := httptest.NewRecorder()
	r, err := http.NewRequestWithContext(ctx, v.Asked.Method, v.Asked.URL, nil)
	if err == nil && r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
	} else if err == nil {
		for name, text := range v.Asked.Headers {
			r.Header.Set(name, text)
		}
		r.RequestURI = ""
		http.FileServerFS(b.set.Files).ServeHTTP(w, r)
	} else {
		w.WriteHeader(http.StatusBadRequest)
	}
	headers := []object{}
	for _, name := range slices.Sorted(maps.Keys(w.Header())) {
		headers = append(headers, object{"name": name, "value": strings.Join(w.Header()[name], ", ")})
	}
	var body bytes.Buffer
	if w.Body != nil {
		body = *w.Body
	}
	return object{
		"requestId": v.Request, "responseCode": w.Code, "responseHeaders": headers, "body": base64.StdEncoding.EncodeToString(body.Bytes()),
	}
}
