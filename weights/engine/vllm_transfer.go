package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Update is what lies on the disk of a version, in the words of the backend
// (clients/python/rondo/weight_transfer.py).
type Update struct {
	// Digest is that of the version's manifest.
	Digest string `json:"digest"`
	// Files have the SHA-256 of each file of the version's folder by its name.
	Files map[string]string `json:"files"`
	// Base is the digest of the version that the changes begin at; "": there are none.
	Base string `json:"base"`
	// Changes have the SHA-256 of each file of the elements that differ from the base by its path.
	Changes map[string]string `json:"changes"`
}

// transfer is Load by the backend. Until the server has verified all that it is going to read,
// label and weights are as before.
func (e *VLLM) transfer(ctx context.Context, v Version) error {
	label, err := e.Label(ctx)
	if err != nil {
		return err
	}
	from, err := strconv.ParseInt(label, 10, 64)
	serves := err == nil && from > 0
	if !serves {
		from = 0
	}
	u, err := e.Update(ctx, v, from)
	if err != nil {
		return err
	}
	return e.paused(ctx, func() error {
		if err := e.verify(ctx, v, u); err != nil {
			if serves {
				err = fmt.Errorf("%w (%w)", err, errKept)
			}
			return err
		}
		if err := e.relabel(ctx, v.Label()+"-"+loadingLabel); err != nil {
			return err
		}
		if err := e.updateWeights(ctx, map[string]any{"digest": u.Digest, "apply": true}); err != nil {
			return err
		}
		if err := e.resetCache(ctx); err != nil {
			return err
		}
		return e.ask(ctx, loadTime, "/finish_weight_update", map[string]string{"weight_version": v.Label()}, nil)
	})
}

// verify lets the server verify a version's changes, or where it has none or refuses them the whole
// version. It begins an update.
func (e *VLLM) verify(ctx context.Context, v Version, u *Update) error {
	whole := map[string]any{"digest": u.Digest, "dir": v.Dir, "files": u.Files}
	if u.Base != "" {
		changes := map[string]any{"digest": u.Digest, "dir": v.Dir, "files": u.Files,
			"base": u.Base, "changes": u.Changes}
		err := e.begin(ctx, changes)
		var refused *statusError
		if !errors.As(err, &refused) {
			return err
		}
	}
	return e.begin(ctx, whole)
}

// begin begins an update and sends its first part. Workers on which another update has
// not ended, as of a side-car that was killed, or where one of several workers has
// refused it, refuse a new one.
func (e *VLLM) begin(ctx context.Context, first map[string]any) error {
	err := e.ask(ctx, controlTime, "/start_weight_update", nothing{}, nil)
	var refused *statusError
	if errors.As(err, &refused) {
		// Without a version it changes nothing but that. Where some workers are at no update it
		// fails, and the others have ended theirs.
		if err := e.ask(ctx, controlTime, "/finish_weight_update", nothing{}, nil); err != nil &&
			!errors.As(err, &refused) {
			return err
		}
		err = e.ask(ctx, controlTime, "/start_weight_update", nothing{}, nil)
	}
	if err != nil {
		return err
	}
	return e.updateWeights(ctx, first)
}

func (e *VLLM) updateWeights(ctx context.Context, info map[string]any) error {
	return e.ask(ctx, loadTime, "/update_weights", map[string]any{"update_info": info}, nil)
}
