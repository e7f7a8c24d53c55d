package state

import "weft/kind"

// PodReportTables are the reports about Pods of Kubernetes, by NAME.NAMESPACE.
type PodReportTables struct {
	PodReports Rows[kind.PodReport]
}

func (t *Tables) addPodReports() { t.PodReports = addRows(t, kind.PodReports) }
