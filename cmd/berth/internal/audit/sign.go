package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Namespace is the namespace of signatures, as `ssh-keygen -Y verify -n` wants it.
const Namespace = "berth-audit"

// Sign signs a page with the private SSH key in a file. The signature is that of
// `ssh-keygen -Y sign`.
func Sign(page []byte, keyFile string) ([]byte, error) {
	b, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(b)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		return nil, fmt.Errorf("key %q has a passphrase: write the page with -o PAGE, and sign it with `ssh-keygen -Y sign -n %s -f %s PAGE`", keyFile, Namespace, keyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("key %q is not a private SSH key: %w", keyFile, err)
	}
	s, err := sshsig.Sign(bytes.NewReader(page), signer, sshsig.HashSHA512, Namespace)
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(s), nil
}

// ErrUnknownKey means that a page was signed with a key that the reader does not
// trust.
var ErrUnknownKey = errors.New("the key is not one of those that you trust")

// Verify checks the signature of a page against the keys in a file, in the format of
// a *.pub file, of authorized_keys or of allowed_signers. It returns the fingerprint
// of the key. Fails with ErrUnknownKey.
func Verify(page, signature []byte, signersFile string) (fingerprint string, err error) {
	s, err := sshsig.Unarmor(signature)
	if err != nil {
		return "", fmt.Errorf("the signature cannot be read: %w", err)
	}
	fingerprint = ssh.FingerprintSHA256(s.PublicKey)
	b, err := os.ReadFile(signersFile)
	if err != nil {
		return fingerprint, err
	}
	for line := range strings.Lines(string(b)) {
		key := keyIn(strings.TrimSpace(line))
		if key == nil || !bytes.Equal(key.Marshal(), s.PublicKey.Marshal()) {
			continue
		}
		if err = sshsig.Verify(bytes.NewReader(page), s, key, s.HashAlgorithm, Namespace); err != nil {
			return fingerprint, fmt.Errorf("the page is not the one that was signed: %w", err)
		}
		return fingerprint, nil
	}
	return fingerprint, fmt.Errorf("%w: it is %s (%s), and %s does not have it. If you know and trust its owner, add the public key there",
		ErrUnknownKey, fingerprint, s.PublicKey.Type(), signersFile)
}

// keyIn returns the key of a line, which may begin with the names of allowed_signers;
// nil if there is none.
func keyIn(line string) ssh.PublicKey {
	for range 3 { // names, then options
		if key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err == nil {
			return key
		}
		_, rest, more := strings.Cut(line, " ")
		if !more {
			return nil
		}
		line = strings.TrimSpace(rest)
	}
	return nil
}
