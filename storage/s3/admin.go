package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/rondo-rl/rondo/storage"
)

// ErrUnable means that the server has no users, or no policies.
var ErrUnable = errors.New("the server has no separate users")

var errTooMuch = errors.New("it writes where it may not: a statement of others in the bucket's policy allows it, or the server does not follow policies")

// maxAnswer bounds what is read of the server's list of users, in bytes.
const maxAnswer = 4 << 20

// User is somebody whom the server shall know.
type User struct {
	Secret string
	Grant
}

// Admin manages the users of a versitygw with an IAM directory, and a bucket's policy, with the
// credentials of the server's root user.
type Admin struct {
	config Config
	root   *Store
	base   url.URL
}

// OpenAdmin connects to a server, and makes the bucket where the configuration says so. ErrUnable
// when the server has no users.
func OpenAdmin(ctx context.Context, c Config) (*Admin, error) {
	c.Region = cmp.Or(c.Region, defaultRegion)
	s, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open S3 store in bucket %s: %w", c.Bucket, err)
	}
	host, secure, err := c.host()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	a := &Admin{config: c, root: s, base: url.URL{Scheme: "http", Host: host}}
	if secure {
		a.base.Scheme = "https"
	}
	if _, err := a.users(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return a, nil
}

// Close gives the connections back.
func (a *Admin) Close() error { return a.root.Close() }

// account is a user as the server's interface has it.
type account struct {
	XMLName xml.Name `xml:"Account"`
	Access  string
	Secret  string
	Role    string
}

// users are the access keys of all users.
func (a *Admin) users(ctx context.Context) ([]string, error) {
	var list struct {
		Accounts []struct{ Access string }
	}
	answer, err := a.ask(ctx, "list-users", "", nil)
	if err != nil {
		return nil, err
	}
	if err := xml.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("%w: it does not answer as versitygw does", ErrUnable) // the answer holds secrets
	}
	var names []string
	for _, u := range list.Accounts {
		names = append(names, u.Access)
	}
	return names, nil
}

// Apply makes the server's users as given, removes others by their access keys, sets
// the bucket's policy, and tries out that it holds. It may be repeated. ErrUnable when
// the server has no policies.
func (a *Admin) Apply(ctx context.Context, users []User, gone []string) error {
	present, err := a.users(ctx)
	if err != nil {
		return err
	}
	grants := make([]Grant, len(users))
	for i, u := range users {
		grants[i] = u.Grant
		if err := a.setUser(ctx, u, slices.Contains(present, u.User)); err != nil {
			return fmt.Errorf("make user %s: %w", u.User, err)
		}
	}
	if err := a.setPolicy(ctx, grants); err != nil {
		return err
	}
	for _, access := range gone {
		if !slices.Contains(present, access) {
			continue
		}
		if _, err := a.ask(ctx, "delete-user", access, nil); err != nil {
			return fmt.Errorf("remove user %s: %w", access, err)
		}
	}
	for _, u := range users {
		if err := a.try(ctx, u); err != nil {
			return fmt.Errorf("try out the rights of user %s: %w", u.User, err)
		}
	}
	return nil
}

func (a *Admin) setUser(ctx context.Context, u User, known bool) error {
	body, err := xml.Marshal(account{Access: u.User, Secret: u.Secret, Role: "user"})
	if err != nil {
		return err
	}
	if known {
		_, err = a.ask(ctx, "update-user", u.User, body)
	} else {
		_, err = a.ask(ctx, "create-user", "", body)
	}
	return err
}

// forUser is the configuration with a user's keys. Files hold those of the root user.
func (c Config) forUser(u User) Config {
	c.AccessKey, c.SecretKey, c.SessionToken, c.KeysInFiles = u.User, u.Secret, "", false
	return c
}

// try does as a user what it may do, and what only those may who may write everywhere.
func (a *Admin) try(ctx context.Context, u User) error {
	s, err := connect(a.config.forUser(u))
	if err != nil {
		return err
	}
	defer s.Close()
	key := probePrefix + rand.Text()
	if err := errors.Join(s.Put(ctx, key, []byte("mine")), s.Delete(ctx, key)); err != nil {
		return err
	}
	if slices.Contains(u.Write, "*") {
		return nil
	}
	key = "rondo-denied/" + rand.Text()
	switch err := s.Put(ctx, key, []byte("not mine")); {
	case err == nil:
		return errors.Join(errTooMuch, a.root.Delete(ctx, key))
	case response(err).StatusCode != http.StatusForbidden:
		return err
	}
	return nil
}

// ask does a request of the server's own interface for its users.
func (a *Admin) ask(ctx context.Context, action, access string, body []byte) ([]byte, error) {
	at := a.base
	at.Path = "/" + action
	if access != "" {
		at.RawQuery = url.Values{"access": {access}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Amz-Content-Sha256", storage.Digest(body))
	request = signer.SignV4(*request, a.config.AccessKey, a.config.SecretKey, a.config.SessionToken, a.config.Region)
	answer, err := a.root.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 300 {
		return text, nil
	}
	refusal := minio.ErrorResponse{StatusCode: answer.StatusCode}
	_ = xml.Unmarshal(text, &refusal) // other servers answer as they like
	refusal.Code = cmp.Or(refusal.Code, answer.Status)
	// What does not know the interface takes its path for a bucket's name, or
	// the method for a mistake.
	if answer.StatusCode != http.StatusForbidden && answer.StatusCode < 500 && action == "list-users" ||
		answer.StatusCode == http.StatusNotImplemented {
		return nil, fmt.Errorf("%w (%s)", ErrUnable, refusal.Code)
	}
	return nil, fmt.Errorf("%s: the server answers %s: %s", action, refusal.Code, refusal.Message)
}
