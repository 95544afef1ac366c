package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const batchKind = "batch"

// sampleRow is a Sample with the JSON texts of the file.
type sampleRow struct {
	components, annotations, columns, hints, images string
	constrained                                     []bool // as long as the tokens, where the file has a column of it
	*Sample
}

var sampleColumns = []column[sampleRow]{
	stringColumn("run_id", func(r *sampleRow) *string { return &r.Run }),
	stringColumn("group_id", func(r *sampleRow) *string { return &r.Group }),
	stringColumn("rollout_id", func(r *sampleRow) *string { return &r.Rollout }),
	stringColumn("task", func(r *sampleRow) *string { return &r.Task }),
	stringColumn("stop_reason", func(r *sampleRow) *string { return &r.StopReason }),
	int32Column("sample_index", func(r *sampleRow) *int32 { return &r.SampleIndex }),
	int32Column("samples_in_rollout", func(r *sampleRow) *int32 { return &r.SamplesInRollout }),
	int32Column("prompt_length", func(r *sampleRow) *int32 { return &r.PromptLength }),
	boolColumn("truncated", func(r *sampleRow) *bool { return &r.Truncated }),
	boolColumn("text_only", func(r *sampleRow) *bool { return &r.TextOnly }),
	int32ListColumn("tokens", func(r *sampleRow) *[]int32 { return &r.Tokens }),
	boolListColumn("loss_mask", func(r *sampleRow) *[]bool { return &r.LossMask }),
	float32ListColumn("sampler_logprobs", func(r *sampleRow) *[]float32 { return &r.SamplerLogprobs }),
	float32ListColumn("advantages", func(r *sampleRow) *[]float32 { return &r.Advantages }),
	versionsColumn("policy_versions", func(r *sampleRow) *[]VersionSegment { return &r.PolicyVersions }),
	float32Column("reward", func(r *sampleRow) *float32 { return &r.Reward }),
	stringColumn("reward_components", func(r *sampleRow) *string { return &r.components }),
	int64Column("dispatch_version", func(r *sampleRow) *int64 { return &r.DispatchVersion }),
	int32Column("staleness", func(r *sampleRow) *int32 { return &r.Staleness }),
	int32Column("rollout_sampled", func(r *sampleRow) *int32 { return &r.RolloutSampled }),
	int32Column("micro_batch", func(r *sampleRow) *int32 { return &r.MicroBatch }),
	float32Column("temperature", func(r *sampleRow) *float32 { return &r.Temperature }),
	turnsColumn("turns", func(r *sampleRow) *[]TurnSpan { return &r.Turns }),
	stringColumn("annotations", func(r *sampleRow) *string { return &r.annotations }),
}

// EncodeBatch makes a batch file: Arrow IPC file format, zstd, one record batch;
// schemas/arrow.md describes it. The same batch gives the same bytes. It refuses a batch whose
// parts disagree, and ErrTooLarge ones.
func EncodeBatch(b *Batch) ([]byte, error) {
	file, err := encodeBatch(b)
	if err != nil {
		return nil, fmt.Errorf("encode batch %s/%d: %w", b.Feed, b.Step, err)
	}
	return file, nil
}

func encodeBatch(b *Batch) ([]byte, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	meta, err := b.metadata()
	if err != nil {
		return nil, err
	}
	rows := make([]sampleRow, len(b.Samples))
	size := 0
	for i := range rows {
		rows[i].Sample = &b.Samples[i]
		if rows[i].constrained = b.Samples[i].Constrained; rows[i].constrained == nil {
			rows[i].constrained = make([]bool, len(b.Samples[i].Tokens))
		}
		if err := rows[i].encodeTexts(); err != nil {
			return nil, fmt.Errorf("sample %d: %w", i, err)
		}
		if size += rows[i].texts(); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of annotations, reward components, token columns, images and hints",
				ErrTooLarge, maxArrowJSON)
		}
	}
	return writeArrow(b.form().columns(), meta, rows)
}

func (b *Batch) metadata() (*metadata, error) {
	tokens, sampled := 0, 0
	versions := newVersionRange()
	for i := range b.Samples {
		s := &b.Samples[i]
		tokens += len(s.Tokens)
		sampled += countTrue(s.LossMask)
		for _, segment := range s.PolicyVersions {
			versions.add(segment.Version)
		}
	}
	if tokens > MaxArrowTokens {
		return nil, fmt.Errorf("%w: %d tokens (limit %d): make smaller batches", ErrTooLarge, tokens, MaxArrowTokens)
	}
	low, high := versions.bounds()
	meta := &metadata{}
	meta.add("kind", batchKind)
	named := b.columnNames()
	meta.add("schema_version", BatchSchema)
	meta.addText("run_id", b.Run)
	meta.addText("feed", b.Feed)
	meta.addInt("step", b.Step)
	meta.addInt("samples", int64(len(b.Samples)))
	meta.addInt("tokens", int64(tokens))
	meta.addInt("sampled_tokens", int64(sampled))
	meta.addInt("min_policy_version", low)
	meta.addInt("max_policy_version", high)
	meta.addInt("rank", int64(b.Rank))
	meta.addInt("ranks", int64(b.Ranks))
	meta.addInt("micro_batches", int64(b.MicroBatches))
	meta.addInt("batch_samples", b.Whole.Samples)
	meta.addInt("batch_sampled_tokens", b.Whole.SampledTokens)
	meta.addInt("batch_rollouts", b.Whole.Rollouts)
	if n := b.constrained(); n > 0 {
		meta.addInt(constrainedKey, int64(n))
	}
	if n := b.images(); n > 0 {
		meta.addInt(imagesKey, int64(n))
	}
	if len(b.Roles) > 0 {
		meta.add(rolesKey, strings.Join(b.Roles, ","))
	}
	if len(b.Teachers) > 0 {
		meta.add(teachersKey, strings.Join(b.Teachers, ","))
	}
	if b.Hinter != "" {
		meta.add(hintsKey, b.Hinter)
	}
	if len(b.Hinted) > 0 {
		meta.add(hintedKey, strings.Join(b.Hinted, ","))
	}
	if len(named) > 0 {
		meta.add(columnsKey, strings.Join(named, ","))
	}
	return meta, nil
}

// DecodeBatch reads a batch file that may come from anywhere. Whatever the bytes, it does not panic
// and takes bounded memory; the error is an ErrCorrupt or an ErrTooLarge.
func DecodeBatch(file []byte) (*Batch, error) {
	b, err := decodeBatch(file)
	if err != nil {
		return nil, fmt.Errorf("decode batch file: %w", err)
	}
	return b, nil
}

func decodeBatch(file []byte) (*Batch, error) {
	f, err := formOfBatch(file)
	if err != nil {
		return nil, err
	}
	b := &Batch{Teachers: f.teachers}
	makeRows := func(n int) []sampleRow {
		rows := make([]sampleRow, n)
		if n > 0 {
			b.Samples = make([]Sample, n)
		}
		for i := range rows {
			rows[i].Sample = &b.Samples[i]
			if len(f.teachers) > 0 {
				b.Samples[i].TeacherLogprobs = make([][]float32, len(f.teachers))
			}
		}
		return rows
	}
	meta, rows, err := readArrow(f.columns(), batchKind, BatchSchema, file, makeRows)
	if err != nil {
		return nil, err
	}
	if err := b.readMetadata(meta); err != nil {
		return nil, err
	}
	size := 0
	for i := range rows {
		if size += rows[i].texts(); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of annotations, reward components, token columns, images and hints",
				ErrCorrupt, maxArrowJSON)
		}
		if err := rows[i].decodeTexts(); err != nil {
			return nil, fmt.Errorf("%w: sample %d: %w", ErrCorrupt, i, err)
		}
		if f.constrained && len(rows[i].constrained) != len(b.Samples[i].Tokens) {
			return nil, fmt.Errorf("%w: sample %d: marks of %d constrained tokens of %d", ErrCorrupt, i,
				len(rows[i].constrained), len(b.Samples[i].Tokens))
		}
		if slices.Contains(rows[i].constrained, true) {
			b.Samples[i].Constrained = rows[i].constrained
		}
	}
	if err := b.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := meta.matches(b.metadata()); err != nil {
		return nil, err
	}
	return b, nil
}

// readMetadata takes over what the rows do not say.
func (b *Batch) readMetadata(meta annotations) error {
	if err := meta.require("run_id", "feed"); err != nil {
		return err
	}
	b.Run, b.Feed, b.Hinter = meta["run_id"], meta["feed"], meta[hintsKey]
	if names := meta[rolesKey]; names != "" {
		b.Roles = strings.Split(names, ",")
	}
	if names := meta[hintedKey]; names != "" {
		b.Hinted = strings.Split(names, ",")
	}
	var rank, ranks, microBatches int64
	for key, value := range map[string]*int64{"step": &b.Step, "rank": &rank, "ranks": &ranks,
		"micro_batches": &microBatches,
		"batch_samples": &b.Whole.Samples, "batch_sampled_tokens": &b.Whole.SampledTokens,
		"batch_rollouts": &b.Whole.Rollouts} {
		var err error
		if *value, err = strconv.ParseInt(meta[key], 10, 64); err != nil {
			return fmt.Errorf("%w: metadata: %s: %w", ErrCorrupt, key, err)
		}
	}
	b.Rank, b.Ranks, b.MicroBatches = int(rank), int(ranks), int(microBatches)
	return nil
}

// encodeTexts writes the JSON columns; what holds nothing is the empty
// text. Names keep their order.
func (r *sampleRow) encodeTexts() (err error) {
	if len(r.RewardComponents) > 0 {
		if r.components, err = marshal(r.RewardComponents); err != nil {
			return err
		}
	}
	if len(r.Annotations) > 0 {
		if r.annotations, err = marshal(r.Annotations); err != nil {
			return err
		}
	}
	if r.columns, err = columnsText(r.Columns); err != nil {
		return err
	}
	if r.images, err = imagesText(r.Images); err != nil {
		return err
	}
	r.hints, err = hintsText(r.Hints)
	return err
}

func (r *sampleRow) texts() int {
	return len(r.components) + len(r.annotations) + len(r.columns) + len(r.hints) + len(r.images)
}

func marshal(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

func (r *sampleRow) decodeTexts() error {
	if r.components != "" {
		if err := json.Unmarshal([]byte(r.components), &r.RewardComponents); err != nil {
			return fmt.Errorf("reward components: %w", err)
		}
	}
	if r.annotations != "" {
		if err := json.Unmarshal([]byte(r.annotations), &r.Annotations); err != nil {
			return fmt.Errorf("annotations: %w", err)
		}
	}
	if len(r.RewardComponents) == 0 {
		r.RewardComponents = nil
	}
	if len(r.Annotations) == 0 {
		r.Annotations = nil
	}
	var err error
	if r.Columns, err = parseList[TokenColumn]("token columns", r.columns); err != nil {
		return err
	}
	if r.Images, err = parseList[Image]("images", r.images); err != nil {
		return err
	}
	r.Hints, err = parseList[Hint]("hints", r.hints)
	return err
}
