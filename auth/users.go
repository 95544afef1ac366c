package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// User is somebody whom the server knows.
type User struct {
	Name string `json:"name"`
	// Services are those of the topology that the user may be: one, or the several that a process
	// runs. Empty for outsiders.
	Services []string `json:"services,omitempty"`
	// Domain is the log's JetStream, for services that reach it through servers which have none.
	Domain   string             `json:"domain,omitempty"`
	Outsider *topology.Outsider `json:"outsider,omitempty"`
	Expires  time.Time          `json:"expires,omitzero"`
	Revoked  time.Time          `json:"revoked,omitzero"`
	// Key is the user's public key.
	Key string `json:"key"`
}

// ErrNoUser means that the authority has no user of that name.
var ErrNoUser = errors.New("no such user")

// Everybody is who belongs to a plane: its services, the outsiders that come with
// Rondo, and the command line.
func Everybody() []string {
	var names []string
	for _, s := range topology.Services {
		names = append(names, s.Name)
	}
	for _, p := range topology.Participants {
		names = append(names, p.Name)
	}
	return append(names, topology.Admin)
}

// Permissions are what a user may do.
func (u User) Permissions() (topology.Permissions, error) {
	if u.Outsider != nil {
		return topology.OutsiderPermissions(*u.Outsider)
	}
	if slices.Contains(u.Services, topology.Admin) {
		return topology.AdminPermissions(), nil
	}
	p, err := topology.ProcessPermissions(u.Services...)
	// Its inboxes go by the user's name: credentials tell a client nothing else.
	p.Subscribe = slices.DeleteFunc(p.Subscribe, func(s string) bool {
		return strings.HasPrefix(s,
			topology.ServiceInbox(""))
	})
	p.Subscribe = append(p.Subscribe, topology.ServiceInbox(u.Name)+".>")
	if u.Domain != "" {
		p = p.InDomain(u.Domain)
	}
	return p, err
}

func (u User) account() string {
	if u.Outsider != nil {
		return outsideAccount
	}
	return planeAccount
}

func (a *Authority) folder(name string) string { return filepath.Join(a.dir, userDir, name) }

// Creds is the file of a user's credentials: the user's only secret.
func (a *Authority) Creds(name string) string { return filepath.Join(a.folder(name), "nats.creds") }

func (a *Authority) record(name string) string { return filepath.Join(a.folder(name), "user.json") }

// User looks a user up.
func (a *Authority) User(name string) (User, error) {
	var u User
	data, err := os.ReadFile(a.record(name))
	if errors.Is(err, fs.ErrNotExist) || !runfile.ValidToken(name) {
		return u, fmt.Errorf("%w: %q (`rondo auth list` lists them)", ErrNoUser, name)
	}
	if err == nil {
		err = json.Unmarshal(data, &u)
	}
	if err != nil {
		return u, fmt.Errorf("%s: %w", a.record(name), err)
	}
	return u, nil
}

// Users lists all users by name, revoked ones too.
func (a *Authority) Users() ([]User, error) {
	entries, err := os.ReadDir(filepath.Join(a.dir, userDir))
	if err != nil {
		return nil, err
	}
	users := []User{}
	for _, e := range entries {
		u, err := a.User(e.Name())
		if errors.Is(err, ErrNoUser) {
			continue
		}
		if err != nil {
			return nil, err
		}
		users = append(users, u)
	}
	return users, nil
}

// Outcome says what became of a user that was asked for.
type Outcome string

// What can become of a user: nothing, when it is as it should be; new permissions for the same key,
// when Rondo's have changed; a new key.
const (
	OutcomeKept    Outcome = "kept"
	OutcomeUpdated Outcome = "updated"
	OutcomeMade    Outcome = "made"
)

// Ensure makes a user where it is missing, or gives it the permissions that it should have. One
// that was revoked stays so.
func (a *Authority) Ensure(u User) (Outcome, error) {
	if !runfile.ValidToken(u.Name) {
		return "", fmt.Errorf("name %q: use letters, digits, - and _, at most 64", u.Name)
	}
	if u.Domain != "" && !runfile.ValidToken(u.Domain) {
		return "", fmt.Errorf("domain %q: use letters, digits, - and _, at most 64", u.Domain)
	}
	outcome, err := a.ensure(u)
	if err == nil {
		err = a.giveCA(u.Name)
	}
	return outcome, err
}

func (a *Authority) ensure(u User) (Outcome, error) {
	known, err := a.User(u.Name)
	fresh := errors.Is(err, ErrNoUser)
	switch {
	case err != nil && !fresh:
		return "", err
	case !known.Revoked.IsZero():
		return OutcomeKept, nil
	case !fresh && (known.Outsider == nil) != (u.Outsider == nil):
		return "", fmt.Errorf("%s is in use: outsiders and services share no names", u.Name)
	}
	signer, changed, err := a.signer(u)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(a.Creds(u.Name))
	if fresh || errors.Is(err, fs.ErrNotExist) {
		return OutcomeMade, a.issue(u, signer)
	}
	if err != nil {
		return "", err
	}
	if u.Expires.IsZero() {
		u.Expires = known.Expires
	}
	same := u.Expires.Equal(known.Expires) && reflect.DeepEqual(u.Outsider, known.Outsider) &&
		slices.Equal(u.Services, known.Services) && u.Domain == known.Domain
	switch {
	case !same: // what an outsider may do stands in the credentials
		return OutcomeUpdated, errors.Join(a.refuse(known), a.issue(u, signer))
	case changed:
		return OutcomeUpdated, nil
	}
	return OutcomeKept, nil
}

// signer is the key that signs a user. A service's has a scope: its permissions are in the account,
// as they are too many for the line in which a client introduces itself. An outsider's are in its
// credentials, so that the server needs no reload to know it.
func (a *Authority) signer(u User) (key nkeys.KeyPair, changed bool, err error) {
	acc := a.accounts[u.account()]
	p, err := u.Permissions()
	if err != nil {
		return nil, false, err
	}
	name := u.account()
	if u.Outsider == nil {
		name += "-" + u.Name
	}
	if key, err = a.key(name+"-signing", nkeys.CreateAccount); err != nil {
		return nil, false, err
	}
	id, err := key.PublicKey()
	if err != nil {
		return nil, false, err
	}
	if u.Outsider != nil {
		return key, false, nil
	}
	scope := jwt.NewUserScope()
	scope.Key, scope.Role = id, u.Name
	grant(&scope.Template.Permissions, p)
	if before, known := acc.claims.SigningKeys.GetScope(id); known && reflect.DeepEqual(before, jwt.Scope(scope)) {
		return key, false, nil
	}
	acc.claims.SigningKeys.AddScopedSigner(scope)
	return key, true, a.writeServer()
}

func grant(to *jwt.Permissions, p topology.Permissions) {
	to.Pub.Allow, to.Pub.Deny, to.Sub.Allow = p.Publish, p.DenyPublish, p.Subscribe
}

// issue writes a user's credentials with a new key.
func (a *Authority) issue(u User, signer nkeys.KeyPair) error {
	key, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	if u.Key, err = key.PublicKey(); err != nil {
		return err
	}
	claims := jwt.NewUserClaims(u.Key)
	claims.Name, claims.IssuerAccount = u.Name, a.accounts[u.account()].claims.Subject
	if u.Outsider == nil {
		claims.SetScoped(true)
	} else {
		p, err := u.Permissions()
		if err != nil {
			return err
		}
		grant(&claims.Permissions, p)
	}
	if !u.Expires.IsZero() {
		claims.Expires = u.Expires.Unix()
	}
	token, err := claims.Encode(signer)
	if err != nil {
		return err
	}
	seed, err := key.Seed()
	if err != nil {
		return err
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.folder(u.Name), 0o700); err != nil {
		return err
	}
	// The record first: a key that nobody knows of could not be revoked.
	return errors.Join(a.note(u), writeFile(a.Creds(u.Name), creds, 0o600))
}

// note writes what is known of a user.
func (a *Authority) note(u User) error {
	record, err := json.MarshalIndent(u, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(a.record(u.Name), append(record, '\n'), 0o600)
}

// Rotate gives a user a new key and revokes the old one.
func (a *Authority) Rotate(name string) error {
	u, err := a.User(name)
	if err != nil {
		return err
	}
	if err := a.refuse(u); err != nil {
		return err
	}
	signer, _, err := a.signer(u)
	if err != nil {
		return err
	}
	u.Revoked = time.Time{}
	return a.issue(u, signer)
}

// Revoke ends a user: the server turns it away once it has been reloaded.
func (a *Authority) Revoke(name string) error {
	u, err := a.User(name)
	if err != nil || !u.Revoked.IsZero() {
		return err
	}
	if err := a.refuse(u); err != nil {
		return err
	}
	u.Revoked = time.Now().UTC().Truncate(time.Second)
	return errors.Join(a.note(u), os.RemoveAll(a.Creds(name)))
}

// refuse has the account say that a user's key is worth nothing.
func (a *Authority) refuse(u User) error {
	acc := a.accounts[u.account()]
	acc.claims.Revoke(u.Key)
	return a.writeServer()
}
