package s3

import (
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// keysEvery is how long rotated keys may go unnoticed; requests that are refused meanwhile are
// tried again by who made them.
const keysEvery = time.Second

// rotating gives the credentials that lie in files now. While a file is missing or empty, as in the
// middle of a rotation, the last ones hold.
type rotating struct {
	mu    sync.Mutex
	value credentials.Value
	next  time.Time // when to look again
}

var _ credentials.Provider = (*rotating)(nil)

// newCredentials are those of a configuration.
func newCredentials(c Config) *credentials.Credentials {
	if !c.KeysInFiles {
		return credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken)
	}
	return credentials.New(&rotating{value: signed(c.AccessKey, c.SecretKey, c.SessionToken)})
}

func signed(access, secret, session string) credentials.Value {
	return credentials.Value{AccessKeyID: access, SecretAccessKey: secret, SessionToken: session,
		SignerType: credentials.SignatureV4}
}

// RetrieveWithCredContext implements credentials.Provider.
func (r *rotating) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return r.Retrieve()
}

// Retrieve implements credentials.Provider.
func (r *rotating) Retrieve() (credentials.Value, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = time.Now().Add(keysEvery)
	if access, secret, session, err := environmentKeys(); err == nil && access != "" && secret != "" {
		r.value = signed(access, secret, session)
	}
	return r.value, nil
}

// IsExpired implements credentials.Provider.
func (r *rotating) IsExpired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().After(r.next)
}
