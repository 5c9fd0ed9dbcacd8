from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import UserCreationForm as DjangoUserCreationForm
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm
from unfold.widgets import UnfoldAdminEmailInputWidget, UnfoldAdminPasswordWidget

from tenants import tokens
from tenants.models import ApiToken, AuditEntry, Invitation, Membership, Tenant, User
from tenants.records import ReadOnly

admin.site.unregister(Group)


class UserCreationForm(DjangoUserCreationForm):
    class Meta:
        model = User
        fields = ("email",)
        widgets = {"email": UnfoldAdminEmailInputWidget()}  # noqa: RUF012 - Django's own spelling

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for name in ("password1", "password2"):
            self.fields[name].widget = UnfoldAdminPasswordWidget()


class MembershipInline(TabularInline):
    model = Membership
    extra = 0
    autocomplete_fields = ("user", "tenant")


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    form, add_form, change_password_form = UserChangeForm, UserCreationForm, AdminPasswordChangeForm
    list_display = ("email", "name", "is_active", "is_staff", "date_joined")
    list_filter = ("is_active", "is_staff")
    search_fields = ("email", "name")
    ordering = ("email",)
    inlines = (MembershipInline,)
    readonly_fields = ("last_login", "date_joined")
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "password1", "password2")}),)


@admin.register(Tenant)
class TenantAdmin(ModelAdmin):
    list_display = ("name", "public_id", "weight", "created_at")
    search_fields = ("name", "public_id")
    readonly_fields = ("public_id", "created_at")
    fields = ("name", "weight", "public_id", "created_at")
    inlines = (MembershipInline,)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # deleting rows would leave files and adapters behind


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnly):
    list_display = ("name", "token_id", "tenant", "user", "created_at", "expires_at", "last_used_at", "revoked_at")
    search_fields = ("token_id", "name", "tenant__name", "user__email")
    exclude = ("secret_hash",)
    list_select_related = ("tenant", "user")
    actions = ("revoke",)

    @admin.action(description="Revoke at once", permissions=["view"])
    def revoke(self, request: HttpRequest, chosen: QuerySet[ApiToken]) -> None:
        revoked = sum(tokens.revoke(token, timezone.now()) for token in chosen)
        self.message_user(request, f"{revoked} revoked.")


@admin.register(Invitation)
class InvitationAdmin(ReadOnly):
    list_display = ("email", "tenant", "role", "created_at", "expires_at", "accepted_at", "withdrawn_at")
    search_fields = ("email", "tenant__name")
    exclude = ("secret_hash",)
    list_select_related = ("tenant",)


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    list_display = ("at", "tenant", "action", "actor_email", "operator_email", "target", "address")
    search_fields = ("tenant__name", "actor_email", "target", "action")
    list_select_related = ("tenant",)
