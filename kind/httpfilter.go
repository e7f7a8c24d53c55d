package kind

// HTTPFilter changes requests or responses. It has the field of its type.
type HTTPFilter struct {
	// the type of the filter
	Type string `json:"type" schema:"required enum=RequestHeaderModifier|ResponseHeaderModifier|RequestRedirect|URLRewrite|RequestMirror"`
	// the changes of the headers of requests
	RequestHeaderModifier *HeaderModifier `json:"requestHeaderModifier,omitempty"`
	// the changes of the headers of responses
	ResponseHeaderModifier *HeaderModifier `json:"responseHeaderModifier,omitempty"`
	// the redirect that is the response
	RequestRedirect *RequestRedirect `json:"requestRedirect,omitempty"`
	// the changes of the host and the path of requests
	URLRewrite *URLRewrite `json:"urlRewrite,omitempty"`
	// the backend that gets a copy of the requests
	RequestMirror *RequestMirror `json:"requestMirror,omitempty"`
}

// Types of an [HTTPFilter].
const (
	RequestHeaderFilter  = "RequestHeaderModifier"
	ResponseHeaderFilter = "ResponseHeaderModifier"
	RedirectFilter       = "RequestRedirect"
	RewriteFilter        = "URLRewrite"
	MirrorFilter         = "RequestMirror"
)

// HeaderModifier changes headers.
type HeaderModifier struct {
	Set []HeaderValue `json:"set,omitempty" schema:"maxItems=16"` // the headers whose value is replaced
	Add []HeaderValue `json:"add,omitempty" schema:"maxItems=16"` // the headers that get a further value
	// the names of the headers that are removed
	Remove []string `json:"remove,omitempty" schema:"maxLength=256 maxItems=16"`
}

// HeaderValue is a header with a value.
type HeaderValue struct {
	Name string `json:"name" schema:"required maxLength=256"` // the name
	// the value, with operators of Envoy such as %DOWNSTREAM_REMOTE_ADDRESS%
	Value string `json:"value" schema:"required maxLength=1024"`
}

// RequestRedirect is the response to a request: the client is to send it to another URL. A part of the URL that is left
// out stays as it is.
type RequestRedirect struct {
	Scheme   string       `json:"scheme,omitempty" schema:"enum=http|https"` // the scheme
	Hostname string       `json:"hostname,omitempty" schema:"maxLength=253"` // the host name
	Path     *PathRewrite `json:"path,omitempty"`                            // the path
	Port     uint32       `json:"port,omitempty" schema:"port"`              // the port; with a scheme, by default the scheme's
	// the status code
	StatusCode uint32 `json:"statusCode,omitempty" schema:"min=301 max=308 default=302"`
}

// URLRewrite changes the host and the path of requests.
type URLRewrite struct {
	Hostname string       `json:"hostname,omitempty" schema:"maxLength=253"` // the value of the header host
	Path     *PathRewrite `json:"path,omitempty"`                            // the path
}

// PathRewrite is another path.
type PathRewrite struct {
	// the type: the whole path, or the part that a PathPrefix matched
	Type string `json:"type" schema:"required enum=ReplaceFullPath|ReplacePrefixMatch"`
	// the path in place of the whole path; the query stays
	ReplaceFullPath string `json:"replaceFullPath,omitempty" schema:"maxLength=1024"`
	// the path in place of the matched prefix: with /v2, a match of /v1 leads from /v1/users to /v2/users
	ReplacePrefixMatch string `json:"replacePrefixMatch,omitempty" schema:"maxLength=1024"`
}

// Types of a [PathRewrite].
const (
	ReplaceFullPath    = "ReplaceFullPath"
	ReplacePrefixMatch = "ReplacePrefixMatch"
)

// RequestMirror sends a copy of requests to a further backend, whose responses are dropped.
type RequestMirror struct {
	BackendRef RouteBackendRef `json:"backendRef" schema:"required"` // the backend
	// the percentage of the requests that are mirrored
	Percentage *Decimal `json:"percentage,omitempty" schema:"min=0 max=100 default=100"`
}
