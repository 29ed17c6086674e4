// Package uplink carries requests for models, and secrets, from the processes of
// a run on other machines to the one that has the keys: one TLS connection each.
//
// The server makes a certificate that lives as long as it does. A client knows
// its fingerprint, and shows its own token, which is good for the attempts
// that it makes and nothing else. The package decides nothing about requests: that
// is the task of the gateways at both ends. It must not write a key, a secret or a
// token to a file.
package uplink

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"time"
)

// Place says where a server listens.
type Place struct {
	Addresses   []string `json:"addresses"`   // host:port, the ones to be tried first in front
	Fingerprint string   `json:"fingerprint"` // SHA-256 of the certificate, in hex
}

// The headers of a client, and the paths besides those of the gateway.
const (
	clientHeader = "Berth-Client" // its name
	tokenHeader  = "Berth-Token"
	secretPath   = "/secret"
)

// pings finds out within half a minute that the other machine is gone.
func pings() *http.HTTP2Config {
	return &http.HTTP2Config{
		SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second,
		MaxConcurrentStreams: 4096, MaxReceiveBufferPerStream: 4 << 20, MaxReceiveBufferPerConnection: 64 << 20,
	}
}

// Token makes a token for a client.
func Token() (string, error) {
	b := make([]byte, 32)
	_, err := rand.Read(b)
	return hex.EncodeToString(b), err
}

// same compares two texts in a time that says nothing about them.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}
