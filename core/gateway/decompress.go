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

// errUnfit means that the answer does not come from a provider.
var errUnfit = errors.New("it does not answer as a provider does")

// fit prepares an answer for metering and passing on. If it is not a usable
// answer, fit says why and closes its body.
func fit(resp *http.Response) (*http.Response, error) {
	var err error
	if s := resp.StatusCode; s < http.StatusOK || s > 599 {
		err = fmt.Errorf("%w: status %d", errUnfit, s)
	}
	// Some providers compress the answer although they were asked not to.
	// Clients do not expect that, and a compressed answer cannot be metered.
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

// unpacked reads a gzip body. It decompresses in pieces, so a decompression
// bomb is only a long answer.
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

// moved returns the error for a redirect. Redirects are not followed, because
// the key and the conversation are only for the address that the experiment
// names.
func (s *session) moved(resp *http.Response) error {
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return fmt.Errorf("%w: status %d", errUnfit, resp.StatusCode)
	}
	return fmt.Errorf("%w: status %d, which leads to %q: if that is right, make it the base_url", errUnfit, resp.StatusCode, clip(string(s.secrets.clean([]byte(to.Scheme+"://"+to.Host+to.Path)))))
}
