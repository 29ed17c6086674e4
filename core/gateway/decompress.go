package gateway

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// errUnfit means that what came back is no answer of a provider.
var errUnfit = errors.New("it does not answer as a provider does")

// fit makes an answer one that can be metered and passed on, or says why it is
// none; its body is closed then.
func fit(resp *http.Response) (*http.Response, error) {
	var err error
	if s := resp.StatusCode; s < http.StatusOK || s > 599 {
		err = fmt.Errorf("%w: status %d", errUnfit, s)
	}
	// A provider that packs its answer although it was asked not to: clients
	// are told of no packing, and what is packed cannot be metered.
	switch enc := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		resp.Body = &unpacked{ReadCloser: resp.Body}
	default:
		err = fmt.Errorf("%w: its answer is packed with %q, although it was asked not to pack it", errUnfit, clip(enc))
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// unpacked reads a body that is packed with gzip. What it holds comes in
// pieces, so a bomb is no more than a long answer.
type unpacked struct {
	io.ReadCloser

	z *gzip.Reader // nil: nothing was read yet
}

// Read implements io.Reader.
func (u *unpacked) Read(p []byte) (n int, err error) {
	if u.z == nil {
		if u.z, err = gzip.NewReader(u.ReadCloser); err != nil {
			u.z = nil
			return 0, err
		}
	}
	return u.z.Read(p)
}

// moved is what is said of an answer that leads elsewhere. Nobody follows it: the
// key and the conversation are for the address that the experiment names.
func (s *session) moved(resp *http.Response) error {
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return fmt.Errorf("%w: status %d", errUnfit, resp.StatusCode)
	}
	return fmt.Errorf("%w: status %d, which leads to %q: if that is right, make it the base_url", errUnfit, resp.StatusCode, clip(string(s.secrets.clean([]byte(to.Scheme+"://"+to.Host+to.Path)))))
}
