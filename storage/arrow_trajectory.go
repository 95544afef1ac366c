package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

const trajectoryKind = "trajectory"

// maskedKey is the metadata that names the segments that are not trained on.
const maskedKey = "masked"

// messageRow is a Message with the names that let rows of many files stand in one table.
type messageRow struct {
	run, group, rollout, task string
	columns, images           string // in JSON
	Message
}

var messageColumns = []column[messageRow]{
	stringColumn("run_id", func(r *messageRow) *string { return &r.run }),
	stringColumn("group_id", func(r *messageRow) *string { return &r.group }),
	stringColumn("rollout_id", func(r *messageRow) *string { return &r.rollout }),
	stringColumn("task", func(r *messageRow) *string { return &r.task }),
	int32Column("index", func(r *messageRow) *int32 { return &r.Index }),
	int32Column("turn", func(r *messageRow) *int32 { return &r.Turn }),
	int32Column("segment", func(r *messageRow) *int32 { return &r.Segment }),
	stringColumn("role", func(r *messageRow) *string { return &r.Role }),
	stringColumn("content", func(r *messageRow) *string { return &r.Content }),
	stringColumn("name", func(r *messageRow) *string { return &r.Name }),
	stringColumn("tool_call_id", func(r *messageRow) *string { return &r.ToolCallID }),
	stringColumn("tool_calls", func(r *messageRow) *string { return &r.ToolCalls }),
	int32ListColumn("token_ids", func(r *messageRow) *[]int32 { return &r.TokenIDs }),
	float32ListColumn("logprobs", func(r *messageRow) *[]float32 { return &r.Logprobs }),
	boolListColumn("loss_mask", func(r *messageRow) *[]bool { return &r.LossMask }),
	int64Column("policy_version", func(r *messageRow) *int64 { return &r.PolicyVersion }),
	stringColumn("finish_reason", func(r *messageRow) *string { return &r.FinishReason }),
	stringColumn("workspace", func(r *messageRow) *string { return &r.Workspace }),
	timeColumn("started_at", func(r *messageRow) *time.Time { return &r.StartedAt }),
	durationColumn("duration", func(r *messageRow) *time.Duration { return &r.Duration }),
	stringColumn("reasoning", func(r *messageRow) *string { return &r.Reasoning }),
	messageVersionsColumn("version_spans", func(r *messageRow) *[]VersionSegment { return &r.Versions }),
	stringColumn("token_columns", func(r *messageRow) *string { return &r.columns }),
	boolColumn("constrained", func(r *messageRow) *bool { return &r.Constrained }),
}

// columnsOf are those of a trajectory, which may have images.
func columnsOf(images bool) []column[messageRow] {
	if !images {
		return messageColumns
	}
	return append(slices.Clip(messageColumns), stringColumn(imagesKey,
		func(r *messageRow) *string { return &r.images }))
}

// images counts those of the messages.
func (t *Trajectory) images() (n int) {
	for i := range t.Messages {
		n += len(t.Messages[i].Images)
	}
	return n
}

// EncodeTrajectory makes a trajectory file: Arrow IPC file format, zstd, one record batch;
// schemas/arrow.md describes it. The same trajectory gives the same bytes. It refuses a trajectory
// whose parts disagree, and ErrTooLarge ones.
func EncodeTrajectory(t *Trajectory) ([]byte, error) {
	file, err := encodeTrajectory(t)
	if err != nil {
		return nil, fmt.Errorf("encode trajectory of rollout %s: %w", t.Rollout, err)
	}
	return file, nil
}

func encodeTrajectory(t *Trajectory) ([]byte, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	meta, err := t.metadata()
	if err != nil {
		return nil, err
	}
	rows, size := make([]messageRow, len(t.Messages)), 0
	for i := range rows {
		rows[i] = messageRow{run: t.Run, group: t.Group, rollout: t.Rollout, task: t.Task, Message: t.Messages[i]}
		if rows[i].columns, err = columnsText(t.Messages[i].Columns); err != nil {
			return nil, err
		}
		if rows[i].images, err = imagesText(t.Messages[i].Images); err != nil {
			return nil, err
		}
		if size += len(rows[i].columns) + len(rows[i].images); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of token columns and images", ErrTooLarge, maxArrowJSON)
		}
	}
	return writeArrow(columnsOf(t.images() > 0), meta, rows)
}

func (t *Trajectory) metadata() (*metadata, error) {
	tokens, sampled := 0, 0
	versions := newVersionRange()
	for i := range t.Messages {
		m := &t.Messages[i]
		tokens += len(m.TokenIDs)
		sampled += countTrue(m.LossMask)
		versions.addMessage(m)
	}
	if tokens > MaxArrowTokens {
		return nil, fmt.Errorf("%w: %d tokens (limit %d)", ErrTooLarge, tokens, MaxArrowTokens)
	}
	low, high := versions.bounds()
	meta := &metadata{}
	meta.add("kind", trajectoryKind)
	meta.add("schema_version", TrajectorySchema)
	meta.addText("run_id", t.Run)
	meta.addText("group_id", t.Group)
	meta.addText("rollout_id", t.Rollout)
	meta.addText("task", t.Task)
	meta.addText("stop_reason", t.StopReason)
	meta.addInt("dispatch_version", t.DispatchVersion)
	meta.add("text_only", strconv.FormatBool(t.TextOnly))
	meta.addInt("messages", int64(len(t.Messages)))
	meta.addInt("tokens", int64(tokens))
	meta.addInt("sampled_tokens", int64(sampled))
	meta.addInt("min_policy_version", low)
	meta.addInt("max_policy_version", high)
	if n := t.images(); n > 0 {
		meta.addInt(imagesKey, int64(n))
	}
	if len(t.Masked) > 0 {
		segments := map[string][]int32{}
		for _, segment := range slices.Sorted(maps.Keys(t.Masked)) {
			rule := t.Masked[segment]
			segments[rule] = append(segments[rule], segment)
		}
		text, err := json.Marshal(segments)
		if err != nil {
			return nil, err
		}
		meta.add(maskedKey, string(text))
	}
	return meta, nil
}

// parseMasked reads which segments each rule masks.
func parseMasked(text string) (map[int32]string, error) {
	if text == "" {
		return nil, nil
	}
	var segments map[string][]int32
	if err := json.Unmarshal([]byte(text), &segments); err != nil {
		return nil, err
	}
	masked := map[int32]string{}
	for rule, list := range segments {
		for _, segment := range list {
			if rule == "" || masked[segment] != "" {
				return nil, fmt.Errorf("segment %d is masked by no rule, or twice", segment)
			}
			masked[segment] = rule
		}
	}
	return masked, nil
}

// DecodeTrajectory reads a trajectory file that may come from anywhere. Whatever the bytes, it does
// not panic and takes bounded memory; the error is an ErrCorrupt or an ErrTooLarge.
func DecodeTrajectory(file []byte) (*Trajectory, error) {
	t, err := decodeTrajectory(file)
	if err != nil {
		return nil, fmt.Errorf("decode trajectory file: %w", err)
	}
	return t, nil
}

func decodeTrajectory(file []byte) (*Trajectory, error) {
	named, err := namedBy(file)
	if err != nil {
		return nil, err
	}
	_, images := named.GetValue(imagesKey)
	meta, rows, err := readArrow(columnsOf(images), trajectoryKind, TrajectorySchema, file,
		func(n int) []messageRow { return make([]messageRow, n) })
	if err != nil {
		return nil, err
	}
	if err := meta.require("run_id", "group_id", "rollout_id", "task", "stop_reason"); err != nil {
		return nil, err
	}
	t := &Trajectory{Run: meta["run_id"], Group: meta["group_id"], Rollout: meta["rollout_id"], Task: meta["task"],
		StopReason: meta["stop_reason"]}
	var versionErr, textErr error
	t.DispatchVersion, versionErr = strconv.ParseInt(meta["dispatch_version"], 10, 64)
	t.TextOnly, textErr = strconv.ParseBool(meta["text_only"])
	var maskedErr error
	t.Masked, maskedErr = parseMasked(meta[maskedKey])
	if err := errors.Join(versionErr, textErr, maskedErr); err != nil {
		return nil, fmt.Errorf("%w: metadata: %w", ErrCorrupt, err)
	}
	if len(rows) > 0 {
		t.Messages = make([]Message, len(rows))
	}
	size := 0
	for i, row := range rows {
		if size += len(row.columns) + len(row.images); size > maxArrowJSON {
			return nil, fmt.Errorf("%w: more than %d bytes of token columns and images", ErrCorrupt, maxArrowJSON)
		}
		if row.run != t.Run || row.group != t.Group || row.rollout != t.Rollout || row.task != t.Task {
			return nil, fmt.Errorf("%w: row %d is of rollout %.80q, the metadata says %.80q", ErrCorrupt,
				i, row.rollout, t.Rollout)
		}
		t.Messages[i] = row.Message
		if t.Messages[i].Columns, err = parseList[TokenColumn]("token columns", row.columns); err != nil {
			return nil, fmt.Errorf("%w: row %d: %w", ErrCorrupt, i, err)
		}
		if t.Messages[i].Images, err = parseList[Image]("images", row.images); err != nil {
			return nil, fmt.Errorf("%w: row %d: %w", ErrCorrupt, i, err)
		}
	}
	if err := t.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := meta.matches(t.metadata()); err != nil {
		return nil, err
	}
	return t, nil
}
