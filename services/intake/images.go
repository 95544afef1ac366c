package intake

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/images"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// admitImages checks the images of a turn that was sampled elsewhere: that the run's models see
// them, and that the store holds what the turn says of them.
func (s *Service) admitImages(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout,
	p *events.TurnSampled) error {
	shown := 0
	for i, m := range p.Prompt {
		switch {
		case len(m.Images) == 0:
			continue
		case !cfg.Vision:
			return refuse("prompt[%d].images: run %s does not say that its model sees images: vision: true in its run file does", i, r.Run)
		case m.Role != "user" && m.Role != "tool":
			return refuse("prompt[%d].images: only messages of the roles user and tool have images", i)
		}
		if err := storage.CheckImages(m.Images, m.Content); err != nil {
			return refuse("prompt[%d].%v", i, err)
		}
		shown += len(m.Images)
	}
	for after := p.After; after != nil; after = r.Turns[*after].After {
		shown += len(imagesOf(r.Turns[*after].Prompt))
	}
	switch {
	case shown > 0 && tokencheck.Placeholders(p.PromptDelta):
		return refuse("prompt_delta: an id of %d or more is no token of a vocabulary: the server has put hashes in the place of the images' tokens, so mark the turn text_only, with %s in lacks",
			tokencheck.NoToken, events.LackImages)
	case shown > storage.MaxImages:
		return refuse("prompt: its conversation has %d images, at most %d", shown, storage.MaxImages)
	}
	known := map[storage.Image]bool{}
	for _, image := range imagesOf(p.Prompt) {
		if image.At = 0; known[image] {
			continue
		}
		known[image] = true
		if err := s.admitImage(ctx, r.Run, image); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) admitImage(ctx context.Context, run string, image storage.Image) error {
	s.decoders <- struct{}{}
	defer func() { <-s.decoders }()
	data, err := s.object(ctx, harness(run), "images", image.Ref, storage.MaxImage)
	if err != nil {
		return err
	}
	if is, err := images.Read(data); err != nil || !is.Same(image) {
		return refuse("images: the object %.200q is no image of the media type and the size that the turn states",
			image.Key)
	}
	return nil
}

func imagesOf(prompt []events.PromptMessage) (images []storage.Image) {
	for _, m := range prompt {
		images = append(images, m.Images...)
	}
	return images
}

// sameImages refuses a trajectory that shows a model other images than the rollout's turns do:
// no event would name them, and a sample without one would be trained on as if the tokens that
// stand for it said something.
func sameImages(t *storage.Trajectory, r *events.Rollout) error {
	known, shown := map[storage.Image]bool{}, make([]events.View, len(r.Turns))
	for i := range r.Turns {
		for _, image := range imagesOf(r.Turns[i].Prompt) {
			image.At = 0
			known[image] = true
		}
		shown[i] = r.Turns[i].View()
	}
	for i, m := range t.Messages {
		for _, image := range m.Images {
			if image.At = 0; !known[image] {
				return refuse("trajectory: message %d has an image that the rollout's turns do not have", i)
			}
		}
	}
	samples := t.Samples()
	for i, s := range samples {
		if len(s.Images) > 0 && tokencheck.Placeholders(s.Tokens) {
			return refuse("trajectory: segment %d has images and an id of %d or more, which is no token of a vocabulary: give the tokens that stand for the images, or none",
				i, tokencheck.NoToken)
		}
	}
	if i := events.OtherImages(samples, events.SegmentImages(shown, nil, t.TextOnly)); i >= 0 {
		return refuse("trajectory: the images of segment %d are not those that the rollout's turns show, in their order: give its messages the images of the turns' prompts, "+
			"or state no images; rondo's Python client writes none into trajectories", i)
	}
	return nil
}
