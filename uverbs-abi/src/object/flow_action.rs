//! Flow actions.

methods! {
    FLOW_ACTION;

    /// Makes an action that encrypts or decrypts ESP.
    "UVERBS_METHOD_FLOW_ACTION_ESP_CREATE" esp_create = 0 {
        "UVERBS_ATTR_CREATE_FLOW_ACTION_ESP_HANDLE" HANDLE = 0: NewHandle<handle::FlowAction>, required;
        "UVERBS_ATTR_FLOW_ACTION_ESP_ATTRS" ATTRS = 1: In<types::FlowActionEsp>, required;
        "UVERBS_ATTR_FLOW_ACTION_ESP_ESN" ESN = 2: In<u32>, optional;
        /// With a payload of [`EspKeymatAesGcm`](crate::types::EspKeymatAesGcm).
        "UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT" KEYMAT = 3: EnumIn<types::EspKeymat>, required;
        /// With a payload of [`EspReplayBmp`](crate::types::EspReplayBmp), or none.
        "UVERBS_ATTR_FLOW_ACTION_ESP_REPLAY" REPLAY = 4: EnumIn<types::EspReplay>, optional;
        "UVERBS_ATTR_FLOW_ACTION_ESP_ENCAP" ENCAP = 5: In<types::EspEncap>, optional;
    }

    /// Destroys an action of any kind.
    "UVERBS_METHOD_FLOW_ACTION_DESTROY" destroy = 1 {
        "UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE" HANDLE = 0: DestroyHandle<handle::FlowAction>, required;
    }

    /// Changes an ESP action. Attributes as for [`esp_create`], none required.
    "UVERBS_METHOD_FLOW_ACTION_ESP_MODIFY" esp_modify = 2 {
        "UVERBS_ATTR_MODIFY_FLOW_ACTION_ESP_HANDLE" HANDLE = 0: HandleIn<handle::FlowAction>, required;
        "UVERBS_ATTR_FLOW_ACTION_ESP_ATTRS" ATTRS = 1: In<types::FlowActionEsp>, optional;
        "UVERBS_ATTR_FLOW_ACTION_ESP_ESN" ESN = 2: In<u32>, optional;
        "UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT" KEYMAT = 3: EnumIn<types::EspKeymat>, optional;
        "UVERBS_ATTR_FLOW_ACTION_ESP_REPLAY" REPLAY = 4: EnumIn<types::EspReplay>, optional;
        "UVERBS_ATTR_FLOW_ACTION_ESP_ENCAP" ENCAP = 5: In<types::EspEncap>, optional;
    }
}
