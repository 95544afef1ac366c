package audit

import (
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// references checks every object that a payload names, wherever in it the reference stands.
func (c *Checker) references(e events.Event) error {
	var refs []storage.Ref
	document, err := events.Document(e.Data)
	if err == nil {
		refs, err = storage.References(document)
	}
	if err != nil {
		c.find(RuleIdentity, e, "payload: %v", err)
	}
	for _, ref := range refs {
		if err := c.object(e, ref); err != nil {
			return err
		}
		if err := c.parts(e, ref); err != nil {
			return err
		}
	}
	return nil
}

// parts checks the parts of what a reference names, each once.
func (c *Checker) parts(e events.Event, ref storage.Ref) error {
	refs, err := parts.References(c.ctx, c.store, ref)
	if err != nil && !storage.IsUnusable(err) {
		return fmt.Errorf("%s: %w", e.ID, err)
	}
	if errors.Is(err, storage.ErrCorrupt) {
		c.find(RuleObject, e, "%v", err)
	}
	for _, part := range refs {
		if err := c.object(e, part); err != nil {
			return err
		}
	}
	return nil
}

// object fetches a referenced object once and compares its digest.
func (c *Checker) object(e events.Event, ref storage.Ref) error {
	if c.objects[ref.Key+ref.SHA256] {
		return nil
	}
	_, err := c.fetch(e, ref)
	return err
}

// fetch fetches a referenced object, whether it was looked at before or not.
func (c *Checker) fetch(e events.Event, ref storage.Ref) ([]byte, error) {
	c.objects[ref.Key+ref.SHA256] = true
	data, err := storage.GetBlob(c.ctx, c.store, ref)
	switch {
	case err == nil:
		return data, nil
	case storage.IsUnusable(err):
		c.find(RuleObject, e, "%v", err)
		return nil, nil
	}
	return nil, fmt.Errorf("%s: %w", e.ID, err)
}
