package dpserver

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/internal/wire"
	"weft/kind"
)

// WireBound is how large a field of an agent's message may be.
type WireBound struct {
	Items int // of a list; 0 where the field is none
	Bytes int // of a string or bytes, or of each in a list; 0 of a message
}

const (
	maxWord   = 64   // bytes of a run, a serial or a generation
	maxTitle  = 253  // bytes of a name of a mesh, a proxy or a secret
	maxSpiffe = 2048 // bytes of a SPIFFE ID (SPIFFE-ID, section 2.3)
)

// WireBounds are those of every string, list and bytes field that an agent sends, by the field's full name. They are
// checked before anything of the message is used.
var WireBounds = map[protoreflect.FullName]WireBound{
	"weft.agent.v1.RegisterRequest.dataplane":    {Bytes: kind.Dataplanes.MaxBytes},
	"weft.agent.v1.SignRequest.mesh":             {Bytes: maxTitle},
	"weft.agent.v1.SignRequest.name":             {Bytes: maxTitle},
	"weft.agent.v1.SignRequest.request":          {Bytes: 16 << 10},
	"weft.agent.v1.SignRequest.proxy_type":       {Bytes: maxWord},
	"weft.agent.v1.SignRequest.secret":           {Bytes: maxTitle},
	"weft.agent.v1.Report.mesh":                  {Bytes: maxTitle},
	"weft.agent.v1.Report.name":                  {Bytes: maxTitle},
	"weft.agent.v1.Report.run":                   {Bytes: maxWord},
	"weft.agent.v1.Report.envoy_version":         {Bytes: maxTitle},
	"weft.agent.v1.Report.ready_listeners":       {Items: 512}, // 256 inbounds and those that are being withdrawn
	"weft.agent.v1.Report.certificate":           {},
	"weft.agent.v1.Report.proxy_type":            {Bytes: maxWord},
	"weft.agent.v1.Certificate.spiffe_id":        {Bytes: maxSpiffe},
	"weft.agent.v1.Certificate.serial":           {Bytes: maxWord},
	"weft.agent.v1.Certificate.problem":          {Bytes: 1000},
	"weft.agent.v1.ReadyListener.address":        {Bytes: maxWord},
	"weft.agent.v1.ReadyListener.generation":     {Bytes: maxWord},
	"weft.agent.v1.ReadyListener.serial":         {Bytes: maxWord},
	"weft.agent.v1.ReadyListener.spiffe_ids":     {Items: 80, Bytes: maxSpiffe}, // twice 32, while the services of a Dataplane change, and some more
	"weft.agent.v1.InspectionSection.mesh":       {Bytes: maxTitle},
	"weft.agent.v1.InspectionSection.name":       {Bytes: maxTitle},
	"weft.agent.v1.InspectionSection.request":    {Bytes: maxTitle},
	"weft.agent.v1.InspectionSection.content":    {Bytes: 4 << 20},
	"weft.agent.v1.InspectionSection.problem":    {Bytes: 4096},
	"weft.agent.v1.InspectionSection.proxy_type": {Bytes: maxWord},
	"weft.agent.v1.HostNamesRequest.mesh":        {Bytes: maxTitle},
	"weft.agent.v1.HostNamesRequest.name":        {Bytes: maxTitle},
	"weft.agent.v1.HostNamesRequest.version":     {Bytes: maxTitle},
	"weft.agent.v1.HostNamesRequest.proxy_type":  {Bytes: maxWord},
}

// maxServed is the number of bytes of the SPIFFE IDs that are stored of one proxy: 256 inbounds with 32 SPIFFE IDs of 128
// bytes each.
const maxServed = 1 << 20

// checkReport returns InvalidArgument for a Report with a field that is larger than its bound, or with a listener that
// it has twice.
func checkReport(report *wire.Report) error {
	if err := checkMessage(report); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, s := range report.ReadyListeners {
		at := listenerOf(s)
		if seen[at] {
			return status.Errorf(codes.InvalidArgument, "the Report has the listener %s twice; each listener is reported once", at)
		}
		seen[at] = true
	}
	return nil
}

// checkServed returns InvalidArgument where the SPIFFE IDs of a Report, which each inbound of a listener has, are too
// large to be stored.
func checkServed(s *kind.DataplaneListenerStatus) error {
	bytes := 0
	for _, in := range s.Inbounds {
		for _, id := range in.SpiffeIDs {
			bytes += len(id)
		}
	}
	if bytes > maxServed {
		return status.Errorf(codes.InvalidArgument, "the SPIFFE IDs of %d inbounds have %d bytes, at most %d are stored; use fewer services or fewer inbounds", len(s.Inbounds), bytes, maxServed)
	}
	return nil
}

// checkMessage returns InvalidArgument for a message with a field that is larger than its bound.
func checkMessage(m proto.Message) error {
	message := m.ProtoReflect()
	if at, size, most := beyond(message, ""); at != "" {
		return status.Errorf(codes.InvalidArgument, "the %s's %s has %s, at most %d are read", message.Descriptor().Name(), at, size, most)
	}
	return nil
}

// beyond returns the first field beyond its bound, its size and the bound; "" where all are within theirs.
func beyond(m protoreflect.Message, path string) (at, size string, most int) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name, bound := path+string(f.Name()), WireBounds[f.FullName()]
		if !f.IsList() {
			at, size, most = tooLarge(f, v, name, bound)
			return at == ""
		}
		list := v.List()
		if list.Len() > bound.Items {
			at, size, most = name, fmt.Sprintf("%d items", list.Len()), bound.Items
			return false
		}
		for i := 0; i < list.Len() && at == ""; i++ {
			at, size, most = tooLarge(f, list.Get(i), fmt.Sprintf("%s[%d]", name, i), bound)
		}
		return at == ""
	})
	return at, size, most
}

func tooLarge(f protoreflect.FieldDescriptor, v protoreflect.Value, name string, bound WireBound) (at, size string, most int) {
	n := 0
	switch f.Kind() {
	case protoreflect.MessageKind:
		return beyond(v.Message(), name+".")
	case protoreflect.StringKind:
		n = len(v.String())
	case protoreflect.BytesKind:
		n = len(v.Bytes())
	}
	if n > bound.Bytes {
		return name, fmt.Sprintf("%d bytes", n), bound.Bytes
	}
	return "", "", 0
}
