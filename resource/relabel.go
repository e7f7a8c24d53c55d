package resource

import (
	"encoding/json"
	"fmt"
)

// Relabel changes only the labels in a stored form ([Body]). Fields that this release does not know remain.
func Relabel(body []byte, change func(labels map[string]string)) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	labels := map[string]string{}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("stored body: %w", err)
	}
	if written := fields["labels"]; written != nil {
		if err := json.Unmarshal(written, &labels); err != nil {
			return nil, fmt.Errorf("stored labels: %w", err)
		}
	}
	change(labels)
	var err error
	if fields["labels"], err = json.Marshal(labels); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
