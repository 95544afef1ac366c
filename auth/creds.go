package auth

import (
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/jwt/v2"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// defaultInbox is the prefix of NATS clients' inboxes for users who may have any.
const defaultInbox = "_INBOX"

// InboxPrefix is where a user may receive answers. Credentials say it themselves: by the user's
// name, or among the subjects that the user may subscribe to.
func InboxPrefix(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token, err := jwt.ParseDecoratedJWT(text)
	if err != nil {
		return "", fmt.Errorf("%s holds no credentials", file) // the library's error may repeat what it read
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return "", fmt.Errorf("%s holds no credentials of a user", file)
	}
	for _, subject := range claims.Sub.Allow {
		if prefix, ok := strings.CutSuffix(subject, ".>"); ok && strings.HasPrefix(prefix, defaultInbox+".") {
			return prefix, nil
		}
	}
	// its permissions are the account's, and include this
	if claims.HasEmptyPermissions() && runfile.ValidToken(claims.Name) {
		return topology.ServiceInbox(claims.Name), nil
	}
	return defaultInbox, nil
}
