package sandbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
)

// hostView is what a sandbox without namespaces has of the host: a private folder, and where
// Landlock isolates a user of its own.
type hostView struct {
	folder string
	user   uint32 // 0: the owner's
}

// privateUsers is how many users the sandboxes of a machine draw theirs from, behind verifierUser;
// two that drew the same one could signal each other's processes.
const privateUsers = 1 << 26

func newHostView(level string) (hostView, error) {
	var own hostView
	if level == IsolationLandlock {
		if os.Geteuid() != 0 {
			return own, errors.New("landlock: only root can run a sandbox as another user, and a sandbox of the same user could change the mode of that user's files")
		}
		own.user = verifierUser + 1 + rand.Uint32N(privateUsers)
	}
	var err error
	if own.folder, err = os.MkdirTemp("", groupPrefix+"-"+self()+"-"); err != nil || own.user == 0 {
		return own, err
	}
	if err := os.Chown(own.folder, int(own.user), int(own.user)); err != nil {
		return own, errors.Join(fmt.Errorf("landlock: give a folder to user %d: %w", own.user, err),
			os.RemoveAll(own.folder))
	}
	return own, nil
}
